package pool

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"sslo/proxy/relay"
	"sslo/proxy/sock"
	"sslo/tls/term"
)

// Errors of Connect.
var (
	ErrNoMember  = errors.New("no member in service")
	ErrConnect   = errors.New("connect failed")
	ErrHandshake = errors.New("TLS handshake failed")
)

// Request is what a connection needs of a server.
type Request struct {
	ServerName string // the client's SNI
	ALPN       string // what the client was promised
	Raw        bool   // ciphertext is relayed: no TLS of ours
	Connect    time.Duration
	Handshake  time.Duration
	Source     netip.Addr // of the client
	Healthy    func(member string) bool
	Since      func(member string) time.Time // when it came into service; zero: long ago. nil: all did
	Buffers    *relay.Buffers
	Stop       func() bool // ends the search; nil: never
}

// Server is a connection to a member. Done must be called once at its end.
type Server struct {
	relay.Stream
	Member string
	State  term.State
	of     *counters
}

// Done gives the member's slot back.
func (s *Server) Done() { s.of.open.Add(-1) }

// Connect reaches a healthy member, chosen by the pool's method. When one can not be reached, or its handshake
// fails, the next is tried, each once: no byte of the client has been sent by then.
func (p *Pool) Connect(r Request) (*Server, error) {
	v := p.now.Load()
	var errs []error
	for _, m := range v.choice(&r, time.Now()).order(v.cfg.Method, r.Source, p.turn.Add(1)-1) {
		if r.Stop != nil && r.Stop() {
			break
		}
		s, err := p.try(v, m, &r)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("server pool %s: %w (%d configured)", p.name, ErrNoMember, len(v.members))
	}
	return nil, errors.Join(errs...)
}

// try reaches a member, once more when the server turns out not to speak the protocol that was tried and
// another one is to be.
func (p *Pool) try(v *view, m *member, r *Request) (*Server, error) {
	s, err := p.once(v, m, r)
	for more := otherFamilies; more > 0 && errors.Is(err, term.ErrOtherFamily); more-- {
		s, err = p.once(v, m, r)
	}
	if errors.Is(err, ErrHandshake) {
		m.fail(&m.handshakeFailed, err)
		m.handshakes.Fail(triedFamily(err), err)
	}
	return s, err
}

// triedFamily is the family of the last try.
func triedFamily(err error) term.Family {
	var tried *term.TryError
	if errors.As(err, &tried) {
		return tried.Family
	}
	return 0
}

// otherFamilies is how many a server can be tried with beside the first, and TLS with all its groups.
const otherFamilies = 3

func (p *Pool) once(v *view, m *member, r *Request) (*Server, error) {
	c, err := sock.Dial(netip.AddrPort{}, m.Address, r.Connect, sock.Options{})
	if err != nil {
		m.fail(&m.connectFailed, err)
		return nil, p.errorf(ErrConnect, m, err)
	}
	s := &Server{Member: m.Name, of: m.counters}
	if s.Stream, err = m.wrap(c, v.cfg.TLS, r, s); err != nil {
		sock.Reset(c)
		return nil, p.errorf(ErrHandshake, m, err)
	}
	m.open.Add(1)
	m.total.Add(1)
	if s.State.Family != 0 {
		m.handshakes.Add(s.State)
	}
	if s.State.Resumed {
		m.resumed.Add(1)
	}
	return s, nil
}

// wrap makes the stream of a member.
func (m *member) wrap(c *net.TCPConn, t *TLS, r *Request, s *Server) (relay.Stream, error) {
	if r.Raw || m.client == nil {
		return relay.NewPlain(c, r.Buffers, nil)
	}
	w, err := relay.NewWire(c, r.Buffers)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(r.Handshake)); err != nil {
		return nil, err
	}
	sni := r.ServerName
	if t.SNI == SNIConfigured || sni == "" {
		sni = t.ServerName
	}
	conn, err := m.client.Handshake(w, sni, r.ALPN)
	if err != nil {
		w.StopReading()
		_ = w.Close()
		return nil, err
	}
	s.State = conn.State()
	return relay.NewTLSToServer(w, conn), nil
}
