package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"sslo/config"
	"sslo/policy"
)

const intro = `# Configuration

<!-- Generated from the comments in config/config.go and config/tls.go by go generate ./config; do not edit. -->

One YAML file says everything. It is read strictly: an unknown key is an error, and all errors of a
file are reported at once, each as ` + "`file:line:column: path: message`" + `. Check a file without
starting anything, and see what it means, with ` + "`sslo check FILE`" + `. Examples are in
[packaging/examples](../packaging/examples); [commented.yml](../packaging/examples/commented.yml)
has every key.

- Sections with ` + "`NAME`" + ` in their title are mappings from names that you choose to settings. Names have
  letters, digits, ` + "`-` and `_`" + `.
- Where a list is expected, one value alone is a list of one.
- Durations need a unit: ` + "`200ms`, `10s`, `1h30m`" + `. Sizes too: ` + "`256MiB`" + `.
- ` + "`on`, `yes` and `true`" + ` are the same, and so are ` + "`off`, `no` and `false`" + `.
- File names are relative to the folder of the configuration file.
- YAML anchors, aliases and merge keys (` + "`<<`" + `) work.
`

// generator writes the sections of one struct after another.
type generator struct {
	out      bytes.Buffer
	types    map[string]string // comment of a type
	comments map[string]string // comment of Type.Field
}

func generate(sources ...string) ([]byte, error) {
	g := &generator{types: map[string]string{}, comments: map[string]string{}}
	for _, source := range sources {
		if err := g.readComments(source); err != nil {
			return nil, err
		}
	}
	g.out.WriteString(intro)
	t := reflect.TypeFor[config.Config]()
	for i := range t.NumField() {
		f := t.Field(i)
		if key := keyOf(f); key != "" {
			fmt.Fprintf(&g.out, "\n## %s\n\n%s\n", key, g.comments["Config."+f.Name])
			g.section(f, key)
		}
	}
	return g.out.Bytes(), nil
}

func (g *generator) readComments(source string) error {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		spec := gen.Specs[0].(*ast.TypeSpec)
		g.types[spec.Name.Name] = gen.Doc.Text()
		if s, ok := spec.Type.(*ast.StructType); ok {
			g.readFields(spec.Name.Name, s)
		}
	}
	return nil
}

func (g *generator) readFields(typeName string, s *ast.StructType) {
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			g.comments[typeName+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
	}
}

// section writes the table of a field's struct, and then those of the structs inside it.
func (g *generator) section(f reflect.StructField, path string) {
	t := structOf(f.Type)
	if _, named := f.Tag.Lookup("named"); named {
		path += ".NAME"
	} else if f.Type.Kind() == reflect.Slice {
		path += "[]"
	}
	fmt.Fprintf(&g.out, "\n### `%s`\n\n%s\n| key | value | default | |\n|---|---|---|---|\n", path, g.about(t))
	var inner []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		key := keyOf(f)
		if key == "" {
			continue
		}
		fmt.Fprintf(&g.out, "| `%s` | %s | %s | %s |\n", key, valueOf(f), defaultOf(f), g.comments[t.Name()+"."+f.Name])
		if structOf(f.Type) != nil {
			inner = append(inner, f)
		}
	}
	for _, f := range inner {
		g.section(f, path+"."+keyOf(f))
	}
}

// about is the type's comment without its Go name, which means nothing to the reader.
func (g *generator) about(t reflect.Type) string {
	text := strings.TrimPrefix(g.types[t.Name()], t.Name()+" ")
	for _, verb := range []string{"is ", "are ", "holds ", "bound "} {
		if rest, ok := strings.CutPrefix(text, verb); ok {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return text
}

func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" {
		return ""
	}
	return key
}

// words are the types that are written as one value.
var words = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():      "duration",
	reflect.TypeFor[config.Size]():        "size",
	reflect.TypeFor[netip.Addr]():         "address",
	reflect.TypeFor[netip.AddrPort]():     "address:port",
	reflect.TypeFor[netip.Prefix]():       "prefix",
	reflect.TypeFor[policy.PortRange]():   "port or range",
	reflect.TypeFor[string]():             "string",
	reflect.TypeFor[bool]():               "on, off",
	reflect.TypeFor[int]():                "number",
	reflect.TypeFor[map[string]string]():  "mapping of words",
	reflect.TypeFor[config.StatusRange](): "status or range",
	reflect.TypeFor[config.Require]():     "`all`, `any` or number",
	reflect.TypeFor[config.HostPrefix]():  "address with prefix length",
}

// structOf is the struct of a field that has keys of its own, or nil.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, oneValue := words[t]; oneValue || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func valueOf(f reflect.StructField) string {
	t := f.Type
	list := ""
	if t.Kind() == reflect.Slice {
		t, list = t.Elem(), "list of "
	}
	if s := structOf(t); s != nil {
		return list + shortForm(s) + "mapping"
	}
	text, ok := words[t]
	if values := config.Values(t); values != nil {
		if fewer, ok := f.Tag.Lookup("values"); ok {
			values = strings.Split(fewer, ",")
		}
		return list + "`" + strings.Join(values, "`, `") + "`"
	}
	if !ok {
		panic("docgen: no word for " + t.String())
	}
	if low, high := f.Tag.Get("min"), f.Tag.Get("max"); high != "" {
		text += ", " + low + " to " + high
	}
	return list + text
}

// shortForm is what may stand in place of a mapping.
func shortForm(s reflect.Type) string {
	for i := range s.NumField() {
		f := s.Field(i)
		switch _, option, _ := strings.Cut(f.Tag.Get("yaml"), ","); option {
		case "scalar":
			return words[f.Type] + " or "
		case "list":
			return "list of " + words[f.Type.Elem()] + " or "
		}
	}
	return ""
}

func defaultOf(f reflect.StructField) string {
	if f.Tag.Get("required") == "true" {
		return "*required*"
	}
	if words := f.Tag.Get("doc"); words != "" {
		return words
	}
	value, ok := f.Tag.Lookup("default")
	switch {
	case !ok:
		return ""
	case f.Type.Kind() == reflect.Slice, structOf(f.Type) != nil:
		return "`[" + strings.ReplaceAll(value, ",", ", ") + "]`"
	}
	return "`" + value + "`"
}
