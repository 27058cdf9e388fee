package proxy

import "sync"

// registry holds every open flow, from accept on: for List, for the watch, and for the end.
type registry struct {
	mu   sync.Mutex
	head *flow
	n    int
}

func (r *registry) add(f *flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.next = r.head; f.next != nil {
		f.next.prev = f
	}
	r.head = f
	r.n++
}

func (r *registry) remove(f *flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.next != nil {
		f.next.prev = f.prev
	}
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		r.head = f.next
	}
	f.next, f.prev = nil, nil
	r.n--
}

func (r *registry) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// all is a snapshot, the newest first.
func (r *registry) all() []*flow {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*flow, 0, r.n)
	for f := r.head; f != nil; f = f.next {
		out = append(out, f)
	}
	return out
}
