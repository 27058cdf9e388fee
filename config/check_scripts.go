package config

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"strings"

	"sslo/policy/script"
)

// checkTables reads the files of the tables and puts them to the entries.
func (c *checker) checkTables() {
	for _, t := range c.Tables {
		path := join("tables", t.Name)
		if t.Entries == nil {
			t.Entries = map[string]string{}
		}
		data := c.readFile(&t.File, join(path, "file"))
		lines := bufio.NewScanner(bytes.NewReader(data))
		for n := 1; lines.Scan(); n++ {
			line, _, _ := strings.Cut(lines.Text(), "#")
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			key, value, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
			if _, twice := t.Entries[key]; twice {
				c.inFile(t.File, n, path, "%q is in the table already", key)
			}
			t.Entries[key] = strings.TrimSpace(value)
		}
		if err := lines.Err(); err != nil {
			c.errorf(join(path, "file"), "%s: %v", t.File, err)
		}
	}
}

// checkScript compiles a script, with the names that it may use.
func (c *checker) checkScript(s *Script, path string) {
	text := c.readFile(&s.File, join(path, "file"))
	if s.Text = string(text); text == nil {
		if s.File == "" && c.given(path) && c.ok(path) {
			c.errorf(path, "file is required")
		}
		return
	}
	cfg := script.Config{Name: filepath.Base(s.File), Source: s.Text, Instructions: s.Instructions, Memory: int(s.Memory),
		Tables: map[string]map[string]string{}, Chains: namesOf(c.Chains), ServerPools: namesOf(c.ServerPools)}
	for _, t := range c.Tables {
		cfg.Tables[t.Name] = maps.Clone(t.Entries)
	}
	var err error
	var at *script.Error
	if s.Program, err = script.Compile(cfg); errors.As(err, &at) {
		c.inFile(s.File, at.Line, path, "%s", at.Msg)
	} else if err != nil {
		c.errorf(path, "%v", err)
	}
	c.namedIn(s.Text)
}

// namedIn marks what a script names as used: it is named by strings, which are looked for as they are.
func (c *checker) namedIn(text string) {
	mark := func(section string, names []string) {
		for _, n := range names {
			if strings.Contains(text, `"`+n+`"`) || strings.Contains(text, "'"+n+"'") {
				c.used[join(section, n)] = true
			}
		}
	}
	mark("chains", namesOf(c.Chains))
	mark("server_pools", namesOf(c.ServerPools))
}
