package proxy

import (
	"hash/maphash"
	"sync"

	"sslo/session"
)

const shards = 64

// table holds the live connections by inner tuple: how back knows what front decided.
type table struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	flows map[session.Tuple]*flow
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].flows = map[session.Tuple]*flow{}
	}
	return t
}

func (t *table) shard(k session.Tuple) *shard {
	return &t.shards[maphash.Comparable(t.seed, k.Src)%shards]
}

// put enters a flow and returns the one that had its tuple before.
func (t *table) put(k session.Tuple, f *flow) (old *flow) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.flows[k]
	s.flows[k] = f
	return old
}

func (t *table) get(k session.Tuple) *flow {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows[k]
}

// remove takes f out unless another flow has its tuple by now.
func (t *table) remove(k session.Tuple, f *flow) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flows[k] == f {
		delete(s.flows, k)
	}
}
