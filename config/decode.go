package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxNodes bounds the work that aliases of aliases can cause.
const maxNodes = 500_000

// decoder fills a Config from a syntax tree. Unlike a general decoder it goes on after an error
// and remembers where everything was.
type decoder struct {
	*source
	anchors map[string]ast.Node
	nodes   int
}

// decode parses data into c; what is wrong is in src.
func decode(data []byte, c *Config, src *source) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // editors of other systems write a byte order mark
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		src.syntaxError(err)
		return
	}
	d := &decoder{source: src, anchors: map[string]ast.Node{}}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil {
			continue
		}
		if body != nil {
			d.errorAt(positionOf(doc.Body), "", "a second document; a configuration is one document")
			break
		}
		body = doc.Body
	}
	if body == nil || body.Type() == ast.NullType || body.Type() == ast.CommentType {
		d.errorAt(position{1, 1}, "", "the file is empty")
		return
	}
	ast.Walk(anchorCollector(d.anchors), body)
	d.structure(body, reflect.ValueOf(c).Elem(), "")
}

// syntaxError keeps the position that the parser gives and leaves out its picture of the source.
func (s *source) syntaxError(err error) {
	var at interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &at) && at.GetToken() != nil {
		p := at.GetToken().Position
		s.errorAt(position{p.Line, p.Column}, "", "%s", at.GetMessage())
		return
	}
	s.errorAt(position{1, 1}, "", "%s", firstLine(err.Error()))
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

type anchorCollector map[string]ast.Node

func (c anchorCollector) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		c[a.Name.GetToken().Value] = a.Value
	}
	return c
}

// value decodes a node into v. A null leaves the default.
func (d *decoder) value(n ast.Node, v reflect.Value, path string, f field) {
	n = d.resolve(n, path)
	if n == nil {
		return
	}
	switch {
	case f.named:
		d.named(n, v, path)
	case isScalar(v.Type()):
		d.scalar(n, v, path, f)
	case v.Kind() == reflect.Slice:
		d.list(n, v, path)
	case v.Kind() == reflect.Map:
		d.words(n, v, path)
	default:
		d.structure(n, v, path)
	}
}

// resolve follows anchors, aliases and tags; nil means null, or an error that was reported.
func (d *decoder) resolve(n ast.Node, path string) ast.Node {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.errorAt(positionOf(n), path, "aliases make this file too large")
		}
		return nil
	}
	for range 16 {
		switch t := n.(type) {
		case nil, *ast.NullNode:
			return nil
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			n = t.Value
		case *ast.AliasNode:
			target, ok := d.anchors[t.Value.GetToken().Value]
			if !ok {
				d.errorAt(positionOf(t), path, "undefined alias *%s", t.Value.GetToken().Value)
				return nil
			}
			n = target
		default:
			return n
		}
	}
	d.errorAt(positionOf(n), path, "aliases of aliases too deep")
	return nil
}

// entry is a key of a mapping.
type entry struct {
	key   string
	at    position
	value ast.Node
}

// entries lists the keys of a mapping, with those of merge keys (<<) that it does not set itself.
func (d *decoder) entries(n ast.Node, path string, depth int) []entry {
	m, ok := n.(ast.MapNode)
	if !ok || depth > 16 {
		d.errorAt(positionOf(n), path, "must be a mapping, not %s", kindOf(n))
		return nil
	}
	var own []entry
	var merged []ast.Node
	seen := map[string]position{}
	for it := m.MapRange(); it.Next(); {
		if it.Key().IsMergeKey() {
			merged = append(merged, it.Value())
			continue
		}
		e, ok := d.entry(it, path)
		if !ok {
			continue
		}
		if first, dup := seen[e.key]; dup {
			d.errorAt(e.at, join(path, e.key), "duplicate key, first on line %d", first.line)
			continue
		}
		seen[e.key] = e.at
		own = append(own, e)
	}
	for _, n := range merged {
		own = d.merge(own, n, path, depth)
	}
	return own
}

func (d *decoder) entry(it *ast.MapNodeIter, path string) (entry, bool) {
	key, ok := scalarText(d.resolve(it.Key(), path))
	if !ok {
		d.errorAt(positionOf(it.Key()), path, "a key must be a plain word")
		return entry{}, false
	}
	return entry{key, positionOf(it.Key()), it.Value()}, true
}

func (d *decoder) merge(own []entry, n ast.Node, path string, depth int) []entry {
	n = d.resolve(n, path)
	if n == nil {
		return own
	}
	sources := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		sources = list.Values
	}
	have := map[string]bool{}
	for _, e := range own {
		have[e.key] = true
	}
	for _, src := range sources {
		if src = d.resolve(src, path); src == nil {
			continue
		}
		for _, e := range d.entries(src, path, depth+1) {
			if !have[e.key] {
				have[e.key] = true
				own = append(own, e)
			}
		}
	}
	return own
}

// structure decodes a mapping with a fixed set of keys.
func (d *decoder) structure(n ast.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	if _, isMap := n.(ast.MapNode); !isMap {
		for _, f := range fields {
			_, isScalar := scalarText(n)
			if _, isList := n.(*ast.SequenceNode); f.scalar && isScalar || f.list && (isScalar || isList) {
				d.value(n, v.Field(f.index), path, f)
				return
			}
		}
	}
	before := len(d.errs)
	entries := d.entries(n, path, 0)
	if entries == nil && len(d.errs) > before {
		return
	}
	given := map[string]bool{}
	for _, e := range entries {
		f, ok := fieldByKey(fields, e.key)
		if !ok {
			d.errorAt(e.at, join(path, e.key), "unknown key%s", didYouMean(e.key, keysOf(fields)))
			continue
		}
		p := join(path, e.key)
		if d.note(p, e) {
			given[e.key] = true
			d.value(e.value, v.Field(f.index), p, f)
		}
	}
	for _, f := range fields {
		if f.required && !given[f.key] && d.ok(join(path, f.key)) {
			d.errorf(path, "%s is required", f.key)
		}
	}
}

// note remembers where an entry is, and reports whether it has a value.
func (d *decoder) note(path string, e entry) bool {
	target := d.resolve(e.value, path)
	if target == nil {
		return false
	}
	d.at[path] = e.at
	if _, isScalar := scalarText(target); isScalar {
		d.at[path] = positionOf(e.value)
	}
	return true
}

// named decodes a mapping from names to structs into a slice, in the order of the file.
func (d *decoder) named(n ast.Node, v reflect.Value, path string) {
	for _, e := range d.entries(n, path, 0) {
		p := join(path, e.key)
		d.at[p] = e.at
		if msg := checkName(e.key); msg != "" {
			d.errorAt(e.at, p, "%s", msg)
		}
		item := newItem(v.Type().Elem().Elem())
		i, _ := nameField(item.Type())
		item.Field(i).SetString(e.key)
		if value := d.resolve(e.value, p); value != nil {
			d.structure(value, item, p)
		} else if d.ok(p) {
			d.errorAt(e.at, p, "has no content")
		}
		v.Set(reflect.Append(v, item.Addr()))
	}
}

func newItem(t reflect.Type) reflect.Value {
	item := reflect.New(t).Elem()
	if t.Kind() == reflect.Struct && !isScalar(t) {
		setDefaults(item)
	}
	return item
}

// words decodes a mapping from words to words.
func (d *decoder) words(n ast.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range d.entries(n, path, 0) {
		text, ok := scalarText(d.resolve(e.value, path))
		if !ok {
			d.errorAt(e.at, path, "the value of %q must be one value", e.key)
			continue
		}
		v.SetMapIndex(reflect.ValueOf(e.key), reflect.ValueOf(text))
	}
}

// list decodes a sequence, or one value in place of a sequence of one.
func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	values := []ast.Node{n}
	if seq, ok := n.(*ast.SequenceNode); ok {
		values = seq.Values
	} else if _, isScalarNode := scalarText(n); !isScalarNode {
		d.errorAt(positionOf(n), path, "must be a list, not %s", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, len(values)))
	for i, n := range values {
		p := index(path, i)
		d.at[p] = positionOf(n)
		item := newItem(v.Type().Elem())
		if d.resolve(n, p) == nil {
			d.errorAt(positionOf(n), p, "is empty")
		} else {
			d.value(n, item, p, field{})
		}
		v.Set(reflect.Append(v, item))
	}
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string, f field) {
	text, ok := scalarText(n)
	if !ok {
		d.errorAt(positionOf(n), path, "must be one value, not %s", kindOf(n))
		return
	}
	if _, isString := n.(*ast.StringNode); !isString && v.Kind() == reflect.String {
		if _, isBlock := n.(*ast.LiteralNode); !isBlock {
			d.errorAt(positionOf(n), path, "must be a string, not %s; write it in quotes", kindOf(n))
			return
		}
	}
	err := parseScalar(text, v)
	if f.values != nil && !slices.Contains(f.values, text) {
		err = notOneOf(text, f.values)
	}
	if err != nil {
		d.errorAt(positionOf(n), path, "%v", err)
		return
	}
	if msg := outOfRange(v, f); msg != "" {
		d.errorAt(positionOf(n), path, "%s", msg)
	}
}

func outOfRange(v reflect.Value, f field) string {
	if f.min == "" && f.max == "" {
		return ""
	}
	low, high := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	if err := errors.Join(parseScalar(f.min, low), parseScalar(f.max, high)); err != nil {
		panic("config: range of " + f.key + ": " + err.Error())
	}
	if v.Int() < low.Int() || v.Int() > high.Int() {
		return fmt.Sprintf("must be between %s and %s, not %v", f.min, f.max, v.Interface())
	}
	return ""
}

// scalarText is the text of a scalar as it was written: a version 1.10 is not the number 1.1.
func scalarText(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return t.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "a truth value"
	}
	return "this"
}

func fieldByKey(fields []field, key string) (field, bool) {
	for _, f := range fields {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// checkName keeps names usable in paths, metrics and on the command line.
func checkName(name string) string {
	if name == "" || len(name) > 63 {
		return "a name has 1 to 63 characters"
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return fmt.Sprintf("a name has letters, digits, - and _, no %q", r)
		}
	}
	return ""
}
