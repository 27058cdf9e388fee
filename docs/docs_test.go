package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sslo/config"
	"sslo/test/lab/pki"
)

func TestTheFiveLineConfigurationIsGood(t *testing.T) {
	text := read(t, "../README.md")
	_, rest, _ := strings.Cut(text, "```yaml\n")
	block, _, ok := strings.Cut(rest, "```")
	if lines := strings.Count(block, "\n"); !ok || lines != 5 {
		t.Fatalf("README.md: the configuration has %d lines, want 5", lines)
	}
	dir := t.TempDir()
	ca, err := pki.New("docs")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(pki.ECDSA, "shop.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.Write(dir, "www"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sslo.yml")
	if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err != nil {
		t.Error(err)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)

func TestNoLinkBetweenDocumentsIsBroken(t *testing.T) {
	files := []string{"../README.md"}
	for _, pattern := range []string{"*.md", "adr/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
