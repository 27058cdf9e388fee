package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// source remembers where each path of the file is, and collects what is wrong there.
type source struct {
	file     string
	at       map[string]position
	errs     Errors
	warnings Errors
	broken   map[string]bool // paths with an error, and everything above them
}

type position struct{ line, col int }

func newSource(file string) *source {
	return &source{file: file, at: map[string]position{}, broken: map[string]bool{}}
}

func positionOf(n ast.Node) position {
	if n == nil || n.GetToken() == nil {
		return position{}
	}
	p := n.GetToken().Position
	return position{p.Line, p.Column}
}

// errorf reports an error at a path, or at the nearest place above it that is in the file.
func (s *source) errorf(path, format string, args ...any) {
	s.errs = append(s.errs, s.newError(path, format, args...))
	s.mark(path)
}

func (s *source) errorAt(p position, path, format string, args ...any) {
	s.errs = append(s.errs, Error{s.file, p.line, p.col, path, fmt.Sprintf(format, args...)})
	s.mark(path)
}

// inFile reports an error in a file that the configuration names.
func (s *source) inFile(file string, line int, path, format string, args ...any) {
	col := 0
	if line > 0 {
		col = 1
	}
	s.errs = append(s.errs, Error{file, line, col, path, fmt.Sprintf(format, args...)})
	s.mark(path)
}

func (s *source) warnf(path, format string, args ...any) {
	s.warnings = append(s.warnings, s.newError(path, format, args...))
}

func (s *source) newError(path, format string, args ...any) Error {
	p := s.where(path)
	return Error{s.file, p.line, p.col, path, fmt.Sprintf(format, args...)}
}

func (s *source) where(path string) position {
	for ; path != ""; path = parentPath(path) {
		if p, ok := s.at[path]; ok {
			return p
		}
	}
	return position{}
}

func (s *source) mark(path string) {
	for ; path != ""; path = parentPath(path) {
		s.broken[path] = true
	}
}

// ok reports whether nothing at or below path is known to be wrong: a check that follows from
// another error would only hide it.
func (s *source) ok(path string) bool { return !s.broken[path] }

// given reports whether the file itself has the path, which otherwise holds its default.
func (s *source) given(path string) bool { _, ok := s.at[path]; return ok }

func parentPath(path string) string {
	i := strings.LastIndexAny(path, ".[")
	if i < 0 {
		return ""
	}
	return path[:i]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
