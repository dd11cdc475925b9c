// Package console holds the web console that nodes serve at /ui/, as it was built from the sources beside this file.
// The built files are committed and embedded, so that go build needs no Node; CONTRIBUTING.md says how they are built.
//
//	page, ok := console.Open(console.Index)
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
	"regexp"
	"sync"
)

// built is what Vite has made of the sources.
//
//go:embed dist
var built embed.FS

// Index is the name of the page.
const Index = "index.html"

// File is one file of the console. It must not be changed.
type File struct {
	Type    string // as Content-Type has it
	Content []byte
	Gzip    []byte // the content, compressed; nil if that is not smaller
	SHA256  string // of the content, in hex
	// Named reports whether the name changes with the content, so that whoever has the file never has to ask again.
	Named bool
}

// named is the name of a file that Vite names by its content, such as index-B7xkQ9aE.js.
var named = regexp.MustCompile(`-[\w-]{8}\.(js|css)$`)

// Open returns a file by its name below dist, such as assets/icon.svg.
func Open(name string) (*File, bool) {
	f, ok := files()[name]
	return f, ok
}

// files has all files by name. They are compressed once, at first use.
var files = sync.OnceValue(func() map[string]*File {
	out := map[string]*File{}
	dist, err := fs.Sub(built, "dist")
	if err == nil {
		err = fs.WalkDir(dist, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(dist, name)
			if err != nil {
				return err
			}
			out[name], err = newFile(name, content)
			return err
		})
	}
	// What is embedded can be read, and memory can be written to.
	if err != nil {
		panic(err)
	}
	return out
})

// newFile describes a file.
func newFile(name string, content []byte) (*File, error) {
	sum := sha256.Sum256(content)
	f := &File{
		Type:    typeOf(name),
		Content: content,
		SHA256:  hex.EncodeToString(sum[:]),
		Named:   named.MatchString(name),
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if packed.Len() < len(content) {
		f.Gzip = packed.Bytes()
	}
	return f, nil
}

// typeOf returns the type of a file. The table that package mime reads differs from host to host.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}
