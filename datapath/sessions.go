package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"sslo/bpf"
	"sslo/session"
)

// batch is how many entries one system call reads: large enough for the biggest hash bucket,
// small enough for the cache.
const batch = 2048

// scan calls f with every chunk of a hash map until f returns false. What is there all the time
// is seen at least once.
func scan[K, V any](m *ebpf.Map, f func(keys []K, values []V) bool) error {
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read %s: %w", m, err)
		}
		if n > 0 && !f(keys[:n], values[:n]) {
			return nil
		}
		if err != nil {
			return nil
		}
	}
}

// Sessions lists at most limit sessions (0: all) that match the filter, by id.
func (d *Datapath) Sessions(f Filter, limit int) (SessionList, error) {
	k, err := d.loaded()
	if err != nil {
		return SessionList{}, err
	}
	var list SessionList
	m := newMatcher(f, d.Names())
	err = scan(k.Sessions, func(_ []uint64, values []bpf.SsloSession) bool {
		list.Total += len(values)
		for i := range values {
			if !m.match(&values[i]) {
				continue
			}
			list.Matched++
			if limit <= 0 || len(list.Sessions) < limit {
				list.Sessions = append(list.Sessions, toSession(&values[i]))
			}
		}
		return true
	})
	list.Sessions = sorted(list.Sessions)
	return list, err
}

// sorted is by id. Sessions are large: sort their numbers and move each once.
func sorted(in []session.Session) []session.Session {
	order := make([]int, len(in))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(in[a].ID, in[b].ID) })
	out := make([]session.Session, len(in))
	for i, j := range order {
		out[i] = in[j]
	}
	return out
}

// matcher is a filter on the raw entries: what does not match is never converted.
type matcher struct {
	client, server addrMatch
	link, device   idMatch
	chain          idMatch
	states         uint16 // bit set; 0: all
	roots          bool
	bypassed       bool
}

// addrMatch compares the first bits of an address in its 16-byte form.
type addrMatch struct {
	addr [16]byte
	mask [16]byte
	on   bool
}

type idMatch struct {
	id uint16
	on bool
}

func newMatcher(f Filter, n Names) matcher {
	m := matcher{client: newAddrMatch(f.Client), server: newAddrMatch(f.Server), roots: f.Roots, bypassed: f.Bypassed,
		link: newIDMatch(n.links, f.Link), device: newIDMatch(n.devices, f.Device), chain: newIDMatch(n.chains, f.Chain)}
	for _, s := range f.States {
		m.states |= 1 << s
	}
	return m
}

// newIDMatch of an unknown name matches nothing: no object has that id.
func newIDMatch(t nameTable, name string) idMatch {
	id, ok := t.id(name)
	if !ok {
		id = 1<<16 - 1
	}
	return idMatch{id, name != ""}
}

func (m idMatch) match(ids ...uint16) bool { return !m.on || slices.Contains(ids, m.id) }

func newAddrMatch(p netip.Prefix) addrMatch {
	if !p.IsValid() {
		return addrMatch{}
	}
	m := addrMatch{on: true}
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	for i := range bits {
		m.mask[i/8] |= 0x80 >> (i % 8)
	}
	a := p.Addr().As16()
	for i := range a {
		m.addr[i] = a[i] & m.mask[i]
	}
	return m
}

func (m *addrMatch) match(a *[16]byte) bool {
	if !m.on {
		return true
	}
	for i := range a {
		if a[i]&m.mask[i] != m.addr[i] {
			return false
		}
	}
	return true
}

const bypassFlags = uint8(session.BypassOut | session.BypassIn)

func (m *matcher) match(s *bpf.SsloSession) bool {
	return (!m.roots || s.Parent == 0) &&
		(m.states == 0 || m.states&(1<<s.State) != 0) &&
		(!m.bypassed || s.Flags&bypassFlags != 0 || s.Skipped != [len(s.Skipped)]uint8{}) &&
		m.chain.match(s.Chain) && m.device.match(s.Device, s.InDevice) && m.link.match(s.Orig.Link, s.Reply.Link) &&
		m.client.match(&s.Orig.Src) && m.server.match(&s.Orig.Dst)
}

// Session finds one session.
func (d *Datapath) Session(id session.ID) (session.Session, error) {
	k, err := d.loaded()
	if err != nil {
		return session.Session{}, err
	}
	s, err := k.session(uint64(id))
	if err != nil {
		return session.Session{}, err
	}
	return toSession(&s), nil
}

func (k *kernel) session(id uint64) (bpf.SsloSession, error) {
	var s bpf.SsloSession
	err := k.SsloObjects.Sessions.Lookup(id, &s)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return s, fmt.Errorf("session %d: %w", id, ErrNoSession)
	}
	if err != nil {
		return s, fmt.Errorf("session %d: %w", id, err)
	}
	return s, nil
}

// Tree is the whole tree that a session belongs to, root first, child after parent.
func (d *Datapath) Tree(id session.ID) ([]session.Session, error) {
	k, err := d.loaded()
	if err != nil {
		return nil, err
	}
	legs, err := k.tree(uint64(id))
	if err != nil {
		return nil, err
	}
	out := make([]session.Session, len(legs))
	for i := range legs {
		out[i] = toSession(&legs[i])
	}
	return out, nil
}

// tree walks from the root; it may end early when a leg goes away meanwhile.
func (k *kernel) tree(id uint64) ([]bpf.SsloSession, error) {
	s, err := k.session(id)
	if err != nil {
		return nil, err
	}
	if s.Root != s.Id {
		if root, err := k.session(s.Root); err == nil {
			s = root
		}
	}
	legs := []bpf.SsloSession{s}
	for s.Child != 0 && len(legs) <= maxLegs {
		if s, err = k.session(s.Child); err != nil {
			break
		}
		legs = append(legs, s)
	}
	return legs, nil
}

// maxLegs is one leg a pool and the last one.
const maxLegs = 8 + 1
