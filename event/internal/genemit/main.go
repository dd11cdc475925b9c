// Command genemit writes the payload structs of package event/emit, and the types and payloads of the Python
// package, from the built-in catalogue. It runs in the folder of event/emit, by go generate.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringrift/ringlog/event"
)

// pythonDir is the Python package, as seen from event/emit.
const pythonDir = "../../python/ringlog"

// suffix ends the names of the generated files, except listFile.
const suffix = "_gen.go"

// go generate runs it in package emit.
func main() {
	if err := run(".", pythonDir); err != nil {
		fmt.Fprintln(os.Stderr, "genemit:", err)
		os.Exit(1)
	}
}

// run writes Go files into dir, removes those of categories that no longer exist, and writes Python's into python.
func run(dir, python string) error {
	files, err := generate(event.Builtin())
	if err != nil {
		return err
	}
	// Both are made before any file is written: an error leaves all files as they are.
	modules, err := generatePython(event.Builtin())
	if err != nil {
		return err
	}
	// Categories that are gone first, so that a type that moved is not declared twice.
	old, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, current := files[filepath.Base(path)]; !current {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return errors.Join(write(dir, files), write(python, modules))
}

// write writes files into dir.
func write(dir string, files map[string][]byte) error {
	for name, code := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, code, 0o644); err != nil {
			return err
		}
	}
	return nil
}
