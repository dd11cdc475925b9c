// Image writes the image of a release for containers, without a container engine: a folder in the OCI layout with one
// image for each architecture, each of one layer, on top of nothing. The same files give the same bytes.
//
// FILES has the layer of each architecture, as ARCH.tar. Every time is SOURCE_DATE_EPOCH, in seconds.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: image VERSION OUT FILES ARCH...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(version, out, files string, archs []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	made := time.Unix(seconds, 0).UTC()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range archs {
		layer, err := tarball.LayerFromFile(filepath.Join(files, arch+".tar"), tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return err
		}
		image, err := imageOf(layer, version, arch, made)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	path, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	// The layout names one image; whoever reads it chooses an architecture of its index. Skopeo goes by the first
	// annotation. Podman, containerd and Docker take the name from the second, as they write ringlog in full.
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name":          "docker.io/library/ringlog:" + version,
	}))
}

// imageOf returns the image of a layer. It runs a node as a user without rights, with the node's data in a volume. What
// ringlog serve takes as flags comes from variables or arguments.
func imageOf(layer v1.Layer, version, arch string, made time.Time) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(image, mutate.Addendum{Layer: layer,
		History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "cmd/ringlog/packaging/release"}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: made}
	file.Config = v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/usr/bin/ringlog"},
		Cmd:          []string{"serve"},
		Env:          []string{"PATH=/usr/bin", "HOME=/var/lib/ringlog", "RINGLOG_DATA_DIR=/var/lib/ringlog/data"},
		ExposedPorts: map[string]struct{}{"8770/tcp": {}, "9770/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/ringlog": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "ringlog",
			"org.opencontainers.image.description": "Replicated event log",
			"org.opencontainers.image.version":     version,
			"org.opencontainers.image.licenses":    "MPL-2.0",
			"org.opencontainers.image.source":      "https://github.com/ringrift/ringlog",
		},
	}
	return mutate.ConfigFile(image, file)
}
