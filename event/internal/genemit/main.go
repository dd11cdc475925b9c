// Command genemit writes the payload structs of package event/emit from the built-in catalogue. It runs in the
// folder of that package, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringrift/ringlog/event"
)

// suffix ends the names of the generated files, except listFile.
const suffix = "_gen.go"

// go generate runs it in package emit.
func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "genemit:", err)
		os.Exit(1)
	}
}

// run writes the files into dir and removes those of categories that no longer exist.
func run(dir string) error {
	files, err := generate(event.Builtin())
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
	for name, code := range files {
		if err := os.WriteFile(filepath.Join(dir, name), code, 0o644); err != nil {
			return err
		}
	}
	return nil
}
