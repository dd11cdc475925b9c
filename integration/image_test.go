package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imageRuns requires that the image of release 0.1.0 holds what it should and no more, and that the commands of
// docs/operations.md start three nodes of it, which have their events after their containers were replaced.
func imageRuns(t *testing.T, release string) {
	root := t.TempDir()
	imageHolds(t, filepath.Join(release, "ringlog-0.1.0-oci.tar"), root)
	needTools(t, "podman", "runc")
	// Podman's own folders, and a limit of files that a machine without rights to raise it allows.
	own, err := os.MkdirTemp("", "image") // runc wants a short name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(own)
	env := []string{"CONTAINERS_CONF=" + own + "/containers.conf", "CONTAINERS_STORAGE_CONF=" + own + "/storage.conf"}
	for file, text := range map[string]string{
		"containers.conf": "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n" +
			"[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\n",
		"storage.conf": fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", own+"/graph",
			own+"/run"),
	} {
		if err := os.WriteFile(filepath.Join(own, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	podman := func(args ...string) (string, error) {
		cmd := exec.Command("podman", args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// Where no container at all can be started, it is not for the image.
	probe := []string{"run", "--rm", "--network", "host", "--rootfs", root, "/usr/bin/ringlog", "version"}
	if out, err := podman(probe...); err != nil {
		t.Skipf("no container can be started here: %v: %s", err, out)
	}
	defer podman("rm", "--all", "--force", "--volumes")

	all := blocks(t, "../docs/operations.md")
	doc := all[slices.IndexFunc(all, func(b block) bool { return b.language == "sh containers" })].text
	load, start, _ := strings.Cut(doc, "\nfor ")
	start, ask, _ := strings.Cut(start, "\ndone\n")
	script := "set -euo pipefail\n" + load + "\nfor " + start + "\ndone\n" + ask + `
# Each container is replaced by a new one with its volume.
podman rm --all --force >/dev/null
for ` + start + `
done
podman exec n2 ringlog cluster status --exit-when-healthy --timeout 30s
podman exec n3 ringlog tail --from start --until-end | grep EVALUATION_STARTED
test "$(podman inspect --format '{{.State.Status}} {{.Config.User}}' n1)" = "running 65532:65532"
podman stop n1
test "$(podman inspect --format '{{.State.ExitCode}}' n1)" = 0
`
	runIn(t, release, env, "bash", "-c", script)
}

// imageHolds requires that an archive in the OCI layout holds one image for amd64, whose blobs have the digests that name
// them and whose layer has the listed files. It unpacks the layer into a folder.
func imageHolds(t *testing.T, file, root string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parts := map[string][]byte{}
	for header, r := range entriesOf(t, f) {
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(header.Name, "blobs/sha256/"); ok && header.Typeflag == tar.TypeReg {
			if sum := fmt.Sprintf("%x", sha256.Sum256(raw)); sum != name {
				t.Errorf("blob %s has digest %s", name, sum)
			}
		}
		parts[header.Name] = raw
	}
	type descriptor struct {
		MediaType, Digest string
		Platform          struct{ OS, Architecture string }
		Annotations       map[string]string
	}
	read := func(name string, into any) {
		t.Helper()
		name = strings.Replace(name, "sha256:", "blobs/sha256/", 1)
		if err := json.Unmarshal(parts[name], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var layout, index struct{ Manifests []descriptor }
	read("index.json", &layout)
	if len(layout.Manifests) != 1 ||
		layout.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/ringlog:0.1.0" {
		t.Fatalf("the layout has %+v", layout.Manifests)
	}
	read(layout.Manifests[0].Digest, &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Platform.OS != "linux" ||
		index.Manifests[0].Platform.Architecture != "amd64" {
		t.Fatalf("the image is for %+v", index.Manifests)
	}
	var manifest struct {
		MediaType string
		Config    descriptor
		Layers    []descriptor
	}
	read(index.Manifests[0].Digest, &manifest)
	if manifest.MediaType != "application/vnd.oci.image.manifest.v1+json" || len(manifest.Layers) != 1 ||
		manifest.Config.MediaType != "application/vnd.oci.image.config.v1+json" ||
		manifest.Layers[0].MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" {
		t.Fatalf("%+v", manifest)
	}
	var config struct {
		Architecture, OS, Created string
		Config                    struct {
			User            string
			Entrypoint, Cmd []string
			Volumes         map[string]any
		}
	}
	read(manifest.Config.Digest, &config)
	if config.Architecture != "amd64" || config.OS != "linux" || config.Created != "2023-11-14T22:13:20Z" ||
		config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/ringlog"}) ||
		!slices.Equal(config.Config.Cmd, []string{"serve"}) || config.Config.Volumes["/var/lib/ringlog"] == nil {
		t.Errorf("%+v", config)
	}

	layer := parts[strings.Replace(manifest.Layers[0].Digest, "sha256:", "blobs/sha256/", 1)]
	unzipped, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for header, r := range entriesOf(t, unzipped) {
		listed = append(listed, fmt.Sprintf("%04o %d %s", header.Mode, header.Uid, header.Name))
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, os.FileMode(header.Mode))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, r); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"0755 0 etc/", "0644 0 etc/group", "0644 0 etc/passwd", "1777 0 tmp/", "0755 0 usr/", "0755 0 usr/bin/",
		"0755 0 usr/bin/ringlog", "0755 0 usr/share/", "0755 0 usr/share/doc/", "0755 0 usr/share/doc/ringlog/",
		"0644 0 usr/share/doc/ringlog/copyright", "0755 0 var/", "0755 0 var/lib/", "0700 65532 var/lib/ringlog/",
	}
	if !slices.Equal(listed, want) {
		t.Errorf("the layer has\n%s\nand not\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"))
	}
}

// entriesOf yields the entries of a tar file.
func entriesOf(t *testing.T, from io.Reader) func(yield func(*tar.Header, io.Reader) bool) {
	r := tar.NewReader(from)
	return func(yield func(*tar.Header, io.Reader) bool) {
		for {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(header, r) {
				return
			}
		}
	}
}
