package view

import (
	"embed"
	"fmt"
)

// platform has one file of JSON for each declaration.
//
//go:embed platform
var platform embed.FS

// Platform returns the declarations of the platform's signals, by name: elo_trend, regression, throughput and
// training_urgency. docs/views.md explains their thresholds.
func Platform() ([]Declaration, error) {
	files, err := platform.ReadDir("platform")
	if err != nil {
		return nil, fmt.Errorf("view: platform: %w", err)
	}
	var all []Declaration
	// ReadDir sorts by name, so the order is the same in every build.
	for _, file := range files {
		text, err := platform.ReadFile("platform/" + file.Name())
		if err != nil {
			return nil, fmt.Errorf("view: platform: %w", err)
		}
		d, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		all = append(all, d)
	}
	return all, nil
}
