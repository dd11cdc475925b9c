package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// generateCompat returns the modules of ringlog.compat that come from the catalogue, by file name.
func generateCompat(c *event.Catalogue) (map[string][]byte, error) {
	// event_types.py and event_emitters.py, which are written side by side.
	var types, emitters bytes.Buffer
	types.WriteString(pythonHeader +
		`"""DataEventType: the types of the catalogue, with the values that the old buses had. FLOWS: its flows."""

from __future__ import annotations

from enum import Enum


class DataEventType(str, Enum):
    """A type of the catalogue. Each is its value as a string; a former name is another name of its member."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

`)
	emitters.WriteString(pythonHeader +
		`"""One emitter for each type of the catalogue: emit_training_completed(config_key="hex8_2p").

A field that is None is not sent; a field that the catalogue does not have is sent as it is given. What an emitter
returns is that of publish: it may be awaited.
"""

from __future__ import annotations

from typing import Any

from ringlog.compat._process import emit
from ringlog.compat._publication import Publication
from ringlog.compat.event_types import DataEventType as _Type
`)
	// Types of the log itself are left out: the old buses had none of them.
	for _, d := range c.Definitions() {
		fmt.Fprintf(&types, "    %s = %q\n", d.Name, d.Value)
		if err := printEmitter(&emitters, d); err != nil {
			return nil, err
		}
	}

	// Former names after the types, so that each is a second name and no member of its own.
	aliases := c.Aliases()
	emitters.WriteString("\n\n# Emitters of former names.\n")
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		// Every alias is of a type that the catalogue has; reading the catalogue checks that.
		d, _ := c.Definition(aliases[alias])
		fmt.Fprintf(&types, "    %s = %s\n", alias, d.Name)
		fmt.Fprintf(&emitters, "emit_%s = emit_%s\n", strings.ToLower(alias), strings.ToLower(string(d.Name)))
	}

	// __all__ has the emitters of both kinds of names, in one order.
	var names []string
	for _, d := range c.Definitions() {
		names = append(names, strings.ToLower(string(d.Name)))
	}
	for alias := range aliases {
		names = append(names, strings.ToLower(alias))
	}
	slices.Sort(names)
	emitters.WriteString("\n__all__ = [\n")
	for _, name := range names {
		fmt.Fprintf(&emitters, "    \"emit_%s\",\n", name)
	}
	emitters.WriteString("]\n")

	// In Python, a string after an assignment documents the name, so each follows its table.
	types.WriteString("\n\nALIASES: dict[str, str] = {\n")
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		fmt.Fprintf(&types, "    %q: %q,\n", alias, aliases[alias])
	}
	types.WriteString("}\n\"\"\"Former names of types, and the names that they have now.\"\"\"\n")

	types.WriteString("\nFLOWS: dict[str, tuple[tuple[str, str], ...]] = {\n")
	for _, flow := range c.Flows() {
		fmt.Fprintf(&types, "    %q: (\n", flow.Name)
		for _, edge := range flow.Edges {
			fmt.Fprintf(&types, "        (%q, %q),\n", edge[0], edge[1])
		}
		types.WriteString("    ),\n")
	}
	types.WriteString("}\n\"\"\"The documented flows: for each its edges from cause to effect.\"\"\"\n")
	return map[string][]byte{
		"compat/event_types.py":    types.Bytes(),
		"compat/event_emitters.py": emitters.Bytes(),
	}, nil
}

// printEmitter prints the function that publishes a type.
func printEmitter(b *bytes.Buffer, d *event.Definition) error {
	fmt.Fprintf(b, "\n\ndef emit_%s(\n    *,\n", strings.ToLower(string(d.Name)))
	hasSource := false
	for _, f := range d.Payload {
		// Else the name would fail only when somebody imports the module.
		if !pythonName.MatchString(f.Name) || slices.Contains(pythonTaken, f.Name) {
			return fmt.Errorf("%s: %s is no name for a parameter in Python", d.Name, f.Name)
		}
		hasSource = hasSource || f.Name == "source"
		// Every parameter may be left out: the catalogue does not say which fields a type needs.
		fmt.Fprintf(b, "    %s: %s = None,\n", f.Name, compatTypes[kindOf(f)])
	}
	// A field of that name is the publisher, too.
	if !hasSource {
		b.WriteString("    source: str | None = None,\n")
	}
	about := fmt.Sprintf("Publish %s.", d.Name)
	if event.IsReserved(d.Name) {
		about += " The log accepts it from the cluster alone."
	}
	// extra takes fields that the catalogue does not have, under any name.
	fmt.Fprintf(b, "    **extra: Any,\n) -> Publication:\n    \"\"\"%s\"\"\"\n", about)
	// locals() is read before anything else is assigned, so it has the parameters and no other name.
	if hasSource {
		fmt.Fprintf(b, "    return emit(_Type.%s, locals(), source_is_field=True)\n", d.Name)
	} else {
		fmt.Fprintf(b, "    return emit(_Type.%s, locals())\n", d.Name)
	}
	return nil
}

// compatTypes has the catalogue's types as an emitter takes them. A path may be a pathlib.Path.
var compatTypes = map[string]string{"any": "Any", "string": "str | None", "path": "Any", "integer": "int | None",
	"number": "float | None", "boolean": "bool | None", "timestamp": "Any"}
