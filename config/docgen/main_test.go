package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"
)

func TestDocumentIsFresh(t *testing.T) {
	want, err := generate("../config.go", "../tls.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/config.md is stale: run go generate ./config")
	}
}

// Every key says what it is for, and has a default unless it is required or empty by nature.
func TestEveryKeyIsExplained(t *testing.T) {
	doc, err := generate("../config.go", "../tls.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `.*$").FindAll(doc, -1) {
		if regexp.MustCompile(`\|\s*\|$`).Match(row) {
			t.Errorf("no comment: %s", row)
		}
	}
}
