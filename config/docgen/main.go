// Command docgen writes docs/config.md from the structs of package config: their comments are
// the text, their tags the defaults and ranges.
package main

import (
	"flag"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	source := flag.String("source", "config.go", "file with the structs")
	out := flag.String("o", "", "file to write")
	flag.Parse()
	doc, err := generate(*source)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, doc, 0o644); err != nil {
		log.Fatal(err)
	}
}
