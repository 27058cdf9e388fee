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
		chunks, result := readAhead(ctx, k)
		for chunk := range chunks {
			for i := range chunk {
				if s := toSession(&chunk[i]); !yield(&s, nil) {
					return
				}
			}
		}
		if err := <-result; err != nil {
			yield(nil, err)
		}
	}
}

// readAhead reads the table in another goroutine, which ends with it or with ctx.
func readAhead(ctx context.Context, k *kernel) (<-chan []bpf.SsloSession, <-chan error) {
	chunks, result := make(chan []bpf.SsloSession, 2), make(chan error, 1)
	go func() {
		defer close(chunks)
		result <- scan(k.Sessions, func(_ []uint64, values []bpf.SsloSession) bool {
			select {
			case chunks <- append([]bpf.SsloSession(nil), values...):
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return chunks, result
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
