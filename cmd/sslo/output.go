package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// style colours a cell on a terminal; in a pipe it does nothing.
type style string

const (
	plain style = ""
	bold  style = "\x1b[1m"
	dim   style = "\x1b[2m"
	good  style = "\x1b[32m"
	warn  style = "\x1b[33m"
	bad   style = "\x1b[31m"
	reset       = "\x1b[0m"
)

// printer writes tables and trees.
type printer struct {
	w      io.Writer
	colour bool
	now    time.Time
}

func newPrinter(w io.Writer) *printer {
	return &printer{w: w, colour: isTerminal(w) && os.Getenv("NO_COLOR") == "", now: time.Now()}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p *printer) paint(s style, text string) string {
	if !p.colour || s == plain || text == "" {
		return text
	}
	return string(s) + text + reset
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// cell is a field of a table.
type cell struct {
	text  string
	style style
}

func text(s string) cell { return cell{text: s} }

// table has aligned columns; titles that begin with > are of right-aligned ones.
type table struct {
	titles []string
	rows   [][]cell
}

func newTable(titles ...string) *table { return &table{titles: titles} }

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (p *printer) table(t *table) {
	widths, right := make([]int, len(t.titles)), make([]bool, len(t.titles))
	header := make([]cell, len(t.titles))
	for i, title := range t.titles {
		title, right[i] = strings.CutPrefix(title, ">")
		header[i] = cell{title, bold}
	}
	rows := append([][]cell{header}, t.rows...)
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range rows {
		p.row(row, widths, right)
	}
}

func (p *printer) row(row []cell, widths []int, right []bool) {
	var b strings.Builder
	for i, c := range row {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
		switch {
		case right[i]:
			b.WriteString(pad + p.paint(c.style, c.text))
		case i == len(row)-1:
			b.WriteString(p.paint(c.style, c.text))
		default:
			b.WriteString(p.paint(c.style, c.text) + pad)
		}
		if i < len(row)-1 {
			b.WriteString("  ")
		}
	}
	p.line("%s", strings.TrimRight(b.String(), " "))
}

// node is a line of a tree.
type node struct {
	text     string
	children []*node
}

func (n *node) add(text string) *node {
	child := &node{text: text}
	n.children = append(n.children, child)
	return child
}

func (p *printer) tree(n *node) {
	p.line("%s", n.text)
	p.branches(n, "")
}

func (p *printer) branches(n *node, indent string) {
	for i, child := range n.children {
		branch, more := "├─ ", "│  "
		if i == len(n.children)-1 {
			branch, more = "└─ ", "   "
		}
		p.line("%s%s%s", indent, branch, child.text)
		p.branches(child, indent+more)
	}
}

var byteUnits = []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}

// size is a number of bytes as people read it.
func size(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), 0
	for value >= 999.5 && unit < len(byteUnits)-1 {
		value /= 1000
		unit++
	}
	if value < 9.95 {
		return fmt.Sprintf("%.1f %s", value, byteUnits[unit])
	}
	return fmt.Sprintf("%.0f %s", value, byteUnits[unit])
}

// span is a duration as people read it: two units at most.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", max(d, 0).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// since says how long ago something was, and when exactly if that is not today.
func (p *printer) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(p.now.Sub(t))
}

// stateStyle colours the states of devices, monitors and servers.
func stateStyle(state string) style {
	switch state {
	case "up":
		return good
	case "down":
		return bad
	case "unknown", "suspect", "degraded", "disabled", "forced-bypass":
		return warn
	}
	return plain
}

func stateCell(state string) cell { return cell{state, stateStyle(state)} }

func (p *printer) state(state string) string { return p.paint(stateStyle(state), state) }

// dash stands for what is empty.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
