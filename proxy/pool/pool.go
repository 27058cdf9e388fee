package pool

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sslo/tls/cert"
	"sslo/tls/term"
)

// Pool is a server pool in service. Update changes it in place: what its members did, whose turn it is
// and their TLS sessions survive a reload.
type Pool struct {
	name string
	turn atomic.Uint32
	mu   sync.Mutex // for Update
	now  atomic.Pointer[view]
}

// view is what one connection sees.
type view struct {
	cfg     Config
	members []*member
}

type member struct {
	Member
	client *term.Client // nil: plaintext
	*counters
}

// counters of a member outlive its configuration.
type counters struct {
	open                                           atomic.Int64
	total, connectFailed, handshakeFailed, resumed atomic.Uint64
	last                                           atomic.Pointer[failure]
	handshakes                                     term.Tally
}

type failure struct {
	err string
	at  time.Time
}

func (c *counters) fail(n *atomic.Uint64, err error) {
	n.Add(1)
	c.last.Store(&failure{err.Error(), time.Now()})
}

// New makes a pool.
func New(cfg Config) *Pool {
	p := &Pool{name: cfg.Name}
	p.Update(cfg)
	return p
}

// Name of the pool.
func (p *Pool) Name() string { return p.name }

// Update makes the pool match cfg.
func (p *Pool) Update(cfg Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.now.Load()
	v := &view{cfg: cfg}
	for _, m := range cfg.Members {
		if m.Name == "" {
			m.Name = m.Address.String()
		}
		v.members = append(v.members, old.inherit(m, cfg.TLS))
	}
	p.now.Store(v)
}

// inherit takes over the counters of the member with that name and address, and its TLS client with its
// sessions unless TLS changed.
func (v *view) inherit(m Member, t *TLS) *member {
	n := &member{Member: m, counters: &counters{}}
	if v != nil {
		for _, o := range v.members {
			if o.Name == m.Name && o.Address == m.Address {
				n.counters = o.counters
				if sameTLS(v.cfg.TLS, t) {
					n.client = o.client
				}
			}
		}
	}
	if n.client == nil && t != nil {
		n.client = term.NewClient(t.ClientOptions)
	}
	return n
}

func sameTLS(a, b *TLS) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.CA, y.CA, x.Certificates, y.Certificates = nil, nil, nil, nil
	ca := a.CA == b.CA || a.CA != nil && b.CA != nil && a.CA.Equal(b.CA)
	return ca && slices.EqualFunc(a.Certificates, b.Certificates, sameCertificate) && sameSM(&x.SM, &y.SM) && reflect.DeepEqual(x, y)
}

func sameCertificate(a, b tls.Certificate) bool {
	return reflect.DeepEqual(a.Certificate, b.Certificate)
}

// sameSM compares what can not be compared deeply, and takes it out.
func sameSM(a, b **term.SMClient) bool {
	if *a == nil || *b == nil {
		return *a == *b
	}
	x, y := **a, **b
	ca := x.CA == y.CA || x.CA != nil && y.CA != nil && x.CA.Equal(y.CA)
	pair := sameSMPair(x.Certificate, y.Certificate)
	x.CA, y.CA, x.Certificate, y.Certificate = nil, nil, nil, nil
	*a, *b = &x, &y
	return ca && pair
}

func sameSMPair(a, b *cert.SMPair) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

// Available reports whether a member would be tried.
func (p *Pool) Available(healthy func(member string) bool) bool {
	for _, m := range p.now.Load().members {
		if healthy(m.Name) {
			return true
		}
	}
	return false
}

// Stats is a snapshot.
func (p *Pool) Stats(healthy func(member string) bool) Stats {
	s := Stats{Name: p.name}
	for _, m := range p.now.Load().members {
		ms := MemberStats{Name: m.Name, Address: m.Address, Healthy: healthy(m.Name), Open: m.open.Load(),
			Total: m.total.Load(), ConnectFailed: m.connectFailed.Load(), HandshakeFailed: m.handshakeFailed.Load(),
			Resumed: m.resumed.Load()}
		ms.Handshakes, ms.Failures = m.handshakes.Snapshot()
		if f := m.last.Load(); f != nil {
			ms.LastError, ms.LastErrorAt = f.err, f.at
		}
		s.Members = append(s.Members, ms)
	}
	return s
}

func (p *Pool) errorf(err error, m *member, cause error) error {
	return fmt.Errorf("server pool %s, member %s: %w: %w", p.name, m.Name, err, cause)
}
