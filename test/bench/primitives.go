package main

import (
	"context"
	"fmt"

	"sslo/test/bench/sm"
)

// primitives measures the SM stacks beside the primitives that they are made of. It needs neither root nor peers,
// and its table is a part of the document of its own.
func (b *bench) primitives(ctx context.Context) {
	if !b.wants("sm") || !b.has("sslo") || ctx.Err() != nil {
		return
	}
	table, err := sm.Run(ctx, b.repeat, b.quick)
	if err != nil {
		b.fail(err)
		return
	}
	fmt.Println("\n" + table.Markdown())
	if b.smReport {
		b.fail(table.Write(smDocument, b.out.Machine[0]))
	}
}

const smDocument = "docs/performance.md"
