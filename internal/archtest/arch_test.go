package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "sslo"
	maxLines = 700
)

// pure packages: the standard library and the listed packages, no kernel, no network, no HTTP.
var pure = map[string][]string{
	"session":       {},
	"session/model": {"session", "chain"},
	"chain":         {"session"},
	"monitor":       {"chain", "session"},
	"policy":        {"chain", "session"},
	"admin/api":     {"session"},
	"tls/hello":     {},
}

// impure are parts of the standard library that a pure package has no business with.
var impure = []string{"net", "net/http", "os", "os/exec", "syscall", "unsafe", "log", "log/slog"}

// kernelEdge are the imports of the datapath alone.
var kernelEdge = []string{"github.com/cilium/ebpf", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", module + "/bpf"}

// atKernelEdge may import kernelEdge: the datapath, the programs themselves, and what builds and measures test beds.
var atKernelEdge = []string{"datapath", "bpf", "test", "internal/testutil"}

// layers, the lowest first: a package imports its own layer's family and lower ones.
var layers = [][]string{
	{"session"}, {"chain"}, {"session/model", "monitor", "policy"}, {"tls"}, {"config", "datapath", "proxy", "admin"}, {"internal/app"}, {"cmd"},
}

type pkg struct {
	dir     string // "" for the module's root
	files   []string
	imports map[string]string // path -> a file that has it, tests left out
	doc     string
	name    string
}

func TestPurePackages(t *testing.T) {
	pkgs := load(t)
	for dir, allowed := range pure {
		p := pkgs[dir]
		if p == nil {
			t.Errorf("%s: there is no such package", dir)
			continue
		}
		for path, file := range p.imports {
			own, ours := strings.CutPrefix(path, module+"/")
			switch {
			case ours && !slices.Contains(allowed, own):
				t.Errorf("%s imports %s: a pure package imports only %v and the standard library", file, path, allowed)
			case !ours && strings.Contains(path, "."):
				t.Errorf("%s imports %s: a pure package imports no other module", file, path)
			case slices.Contains(impure, path) && !(dir == "tls/hello" && path == "net"):
				t.Errorf("%s imports %s, which is not pure", file, path)
			}
		}
	}
}

func TestOnlyTheDatapathKnowsTheKernel(t *testing.T) {
	for dir, p := range load(t) {
		if under(dir, atKernelEdge) {
			continue
		}
		for path, file := range p.imports {
			if under(path, kernelEdge) {
				t.Errorf("%s imports %s: that is the datapath's alone", file, path)
			}
		}
	}
}

func TestLayers(t *testing.T) {
	for dir, p := range load(t) {
		mine := layer(dir)
		if mine < 0 {
			continue
		}
		for path, file := range p.imports {
			own, ours := strings.CutPrefix(path, module+"/")
			if theirs := layer(own); ours && theirs > mine {
				t.Errorf("%s imports %s, which is above it", file, path)
			} else if ours && theirs == mine && family(dir) != family(own) {
				t.Errorf("%s imports %s, which is beside it: internal/app ties them together", file, path)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for dir, p := range load(t) {
		want := "Package " + p.name + " "
		if p.name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.doc, want) {
			t.Errorf("package %s: its doc comment must begin with %q, it is %.40q", dir, want, p.doc)
		}
	}
}

func TestNoFileIsTooLong(t *testing.T) {
	for _, p := range load(t) {
		for _, file := range p.files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(text, []byte("\n")); lines > maxLines && !generated(text) {
				t.Errorf("%s has %d lines; above %d it has more than one purpose", file, lines, maxLines)
			}
		}
	}
}

func generated(text []byte) bool {
	head, _, _ := bytes.Cut(text, []byte("\npackage "))
	return bytes.Contains(head, []byte("// Code generated "))
}

// load reads every package of the module, but parses only what the rules need.
func load(t *testing.T) map[string]*pkg {
	t.Helper()
	root, pkgs := moduleRoot(t), map[string]*pkg{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || strings.HasPrefix(name, ".") && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") {
			add(t, pkgs, root, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

func add(t *testing.T, pkgs map[string]*pkg, root, path string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Rel(root, filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	test := strings.HasSuffix(path, "_test.go")
	p := pkgs[dir]
	if p == nil {
		if test && strings.HasSuffix(f.Name.Name, "_test") {
			return
		}
		p = &pkg{dir: dir, imports: map[string]string{}, name: f.Name.Name}
		pkgs[dir] = p
	}
	p.files = append(p.files, path)
	if test {
		return
	}
	p.name = f.Name.Name
	if f.Doc != nil && !buildIgnored(f) {
		p.doc = f.Doc.Text()
	}
	for _, spec := range f.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err == nil {
			p.imports[imported] = path
		}
	}
}

func buildIgnored(f *ast.File) bool {
	return len(f.Comments) > 0 && strings.HasPrefix(f.Comments[0].List[0].Text, "//go:build ignore")
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

func under(path string, parents []string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

func layer(dir string) int {
	top := family(dir)
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, top) })
}

// family is the package named in layers that a package belongs to, the most exact one.
func family(dir string) string {
	best := ""
	for _, l := range layers {
		for _, top := range l {
			if under(dir, []string{top}) && len(top) > len(best) {
				best = top
			}
		}
	}
	return best
}
