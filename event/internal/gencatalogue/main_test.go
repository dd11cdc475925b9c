package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedConstantsAreCurrent(t *testing.T) {
	events, err := os.ReadFile("../../" + source)
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile("../../" + undocumented)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(events, more)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../" + target)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go generate ./event", target)
	}
	if n := bytes.Count(want, []byte(" Type = ")); n != 260 {
		t.Errorf("%d constants, the catalogue has 260 types", n)
	}
}

func TestConstantsThatCollideAreRefused(t *testing.T) {
	_, err := generate(
		[]byte(`[{"name":"A_B","status":"canonical","category":"x"},{"name":"A__B","status":"canonical","category":"x"}]`),
		[]byte(`{}`),
	)
	if err == nil {
		t.Error("two types of one constant were accepted")
	}
}
