// Command docgen writes docs/config.md from the structs of package config: their comments are
// the text, their tags the defaults and ranges.
package main

import (
	"flag"
	"log"
	"os"
	"strings"
)

func main() {
	log.SetFlags(0)
	source := flag.String("source", "config.go", "files with the structs, with commas between them")
	out := flag.String("o", "", "file to write")
	flag.Parse()
	doc, err := generate(strings.Split(*source, ",")...)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, doc, 0o644); err != nil {
		log.Fatal(err)
	}
}
