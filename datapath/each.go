package datapath

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cilium/ebpf"

	"sslo/bpf"
	"sslo/session"
)

// All goes through the table in no order, without holding it: a session is only valid until the next.
// The next entries are read from the kernel while these are looked at.
func (d *Datapath) All(ctx context.Context) iter.Seq2[*session.Session, error] {
	return func(yield func(*session.Session, error) bool) {
		k, err := d.loaded()
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := readAhead(ctx, k.Sessions)
		var s session.Session // one for all: a million would be work for the garbage collector
		for c := range r.full {
			for i := range c.values[:c.n] {
				if s = toSession(&c.values[i]); !yield(&s, nil) {
					return
				}
			}
			r.empty <- c
		}
		if r.err != nil {
			yield(nil, r.err)
		}
	}
}

// reader reads a table in another goroutine, into chunks that go round.
type reader struct {
	full, empty chan *chunk
	err         error // valid when full is closed
}

type chunk struct {
	values []bpf.SsloSession
	n      int
}

const chunks = 3 // one that is read, one that waits, one that is looked at

// readAhead ends with the table or with ctx.
func readAhead(ctx context.Context, sessions *ebpf.Map) *reader {
	r := &reader{full: make(chan *chunk, chunks), empty: make(chan *chunk, chunks)}
	for range chunks {
		r.empty <- &chunk{values: make([]bpf.SsloSession, batch)}
	}
	go func() {
		defer close(r.full)
		r.err = r.read(ctx, sessions)
	}()
	return r
}

func (r *reader) read(ctx context.Context, sessions *ebpf.Map) error {
	keys := make([]uint64, batch)
	var cursor ebpf.MapBatchCursor
	for {
		var c *chunk
		select {
		case c = <-r.empty:
		case <-ctx.Done():
			return ctx.Err()
		}
		n, err := sessions.BatchLookup(&cursor, keys, c.values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read %s: %w", sessions, err)
		}
		c.n = n
		r.full <- c
		if err != nil {
			return nil
		}
	}
}

// Find is the tree of the connection with that tuple on the front link, root first.
func (d *Datapath) Find(t session.Tuple) ([]session.Session, error) {
	k, err := d.loaded()
	if err != nil {
		return nil, err
	}
	var f bpf.SsloFlow
	err = k.Flows.Lookup(fromKey(session.Key{Tuple: t, Link: frontID}), &f)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("%s: %w", t, ErrNoSession)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return d.Tree(session.ID(f.Session))
}

// Adopted says whether the kernel side is that of an earlier process: after Open, before Apply.
func (d *Datapath) Adopted() bool {
	_, err := d.loaded()
	return err == nil
}
