package api

import "fmt"

// ProblemType is the media type of a Problem (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is the body of every answer that is not a success (RFC 9457).
type Problem struct {
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Detail string        `json:"detail,omitempty"`
	Errors []ConfigError `json:"errors,omitempty"`
}

func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// ConfigError is one mistake in a configuration file.
type ConfigError struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

func (e ConfigError) String() string {
	place := e.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	if e.Path == "" {
		return fmt.Sprintf("%s: %s", place, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", place, e.Path, e.Message)
}
