package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"sslo/policy"
	"sslo/proxy/relay"
	"sslo/proxy/sock"
	"sslo/session"
	"sslo/tls/hello"
)

var (
	errDeviceClosed = errors.New("the inner connection ended although neither client nor server had ended it")
	errNoReturn     = errors.New("the flow did not come back from the chain")
)

// front runs the client's half of a flow to its end.
func (f *flow) front(c *net.TCPConn) {
	defer f.leave()
	w, err := relay.NewWire(c, f.p.bufs)
	if err != nil {
		sock.Reset(c)
		f.end(ReasonInternal, err)
		return
	}
	defer w.StopReading()
	if !f.add(w) {
		return
	}
	course := f.course()
	if r, ok := course.Connect(); !ok {
		f.route = f.p.carryOut(f.vs, r, course.Err)
		f.follow(c, w, nil)
		return
	}
	_ = c.SetDeadline(time.Now().Add(f.vs.timeouts.ClientHello))
	h, err := hello.Read(w)
	if err != nil {
		f.abort(helloReason(err), err)
		return
	}
	f.server = h.ServerName
	course.Event.Input = input(f, h)
	f.route = f.p.carryOut(f.vs, course.Hello(world{f.p, f.vs}), course.Err)
	f.follow(c, w, h)
}

func (f *flow) follow(c *net.TCPConn, w *relay.Wire, h *hello.Hello) {
	switch {
	case f.route.action == policy.Drop:
		f.drop(c)
	case f.route.err != nil:
		f.abort(f.route.reason, f.route.err)
	case f.route.raw:
		_ = c.SetDeadline(time.Time{})
		client, err := relay.NewPlain(c, f.p.bufs, w.Take())
		if err != nil {
			f.abort(ReasonInternal, err)
			return
		}
		f.carry(client)
	default:
		f.intercept(c, w, h)
	}
}

func (f *flow) intercept(c *net.TCPConn, w *relay.Wire, h *hello.Hello) {
	f.stage("handshake")
	_ = c.SetDeadline(time.Now().Add(f.vs.timeouts.Handshake))
	conn, err := f.vs.tls.Handshake(w, h)
	if err != nil {
		spoken := f.vs.tls.Family(h)
		f.vs.stats.handshakes.Fail(spoken, err)
		f.note(func(c *Conn) { c.ToClient.Family = spoken })
		f.end(handshakeReason(err), err)
		_ = w.Close() // not a reset: the alert says why
		return
	}
	s := conn.State()
	f.alpn = s.ALPN
	f.vs.stats.handshakes.Add(s)
	f.note(func(c *Conn) { c.ToClient = s })
	f.carry(relay.NewTLS(w, conn))
}

// drop holds the connection without a word, so that the client learns nothing from a reset.
func (f *flow) drop(c *net.TCPConn) {
	f.end(f.route.reason, f.route.err)
	f.stage("dropped")
	f.tuple = f.innerTuple()
	f.p.enter(f)
	select {
	case <-time.After(f.vs.timeouts.Drop):
	case <-f.p.closing:
	}
	sock.Reset(c)
}

// carry joins the client to back, through the chain or inside the process.
func (f *flow) carry(client relay.Stream) {
	f.stage("connecting")
	f.tuple = f.innerTuple()
	f.p.enter(f)
	if f.route.collapsed {
		f.p.budget.release(descriptorsPerFlow - descriptorsCollapsed)
		f.descriptors = descriptorsCollapsed
		f.p.ledger.count(f.route.chain, f.route.why)
		f.toServer(client, sideClient)
		return
	}
	inner, err := f.dialInner()
	if err != nil {
		f.abort(innerReason(err), err)
		return
	}
	if f.add(inner) {
		f.innerSince.Store(time.Now().UnixNano())
		f.stage("open")
		h := &half{f: f, near: client, far: inner, nearSide: sideClient, farSide: sideInner}
		h.run(&f.up, &f.down)
	}
}

// innerTuple is the client's own address and port, and the virtual server's address with the plaintext
// port; ciphertext that is not ours keeps the port that the client chose.
func (f *flow) innerTuple() session.Tuple {
	if a := f.p.deps.InnerAddr; f.p.deps.FrontLink == "" {
		return session.Tuple{Proto: session.TCP, Src: netip.AddrPortFrom(loopbackSource, f.client.Port()), Dst: a}
	}
	port := f.listen.Port()
	if !f.route.raw {
		port = f.vs.cfg.PortToInner(port)
	}
	return session.Tuple{Proto: session.TCP, Src: f.client, Dst: netip.AddrPortFrom(f.listen.Addr(), port)}
}

// loopbackSource stands for clients when the box's links are not there.
var loopbackSource = netip.AddrFrom4([4]byte{127, 0, 0, 2})

func (f *flow) dialInner() (*relay.Plain, error) {
	link := f.p.deps.FrontLink
	to := f.tuple.Dst
	if link == "" && f.p.deps.InnerVia.IsValid() {
		to = f.p.deps.InnerVia
	}
	c, err := sock.Dial(f.tuple.Src, to, f.vs.timeouts.Connect,
		sock.Options{Device: link, Transparent: link != "", Mark: f.route.mark})
	if err != nil {
		return nil, f.explainInner(err)
	}
	return relay.NewPlain(c, f.p.bufs, nil)
}

// explainInner says which device kept the flow.
func (f *flow) explainInner(err error) error {
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		return fmt.Errorf("chain %s: %w", f.route.chain, err)
	}
	return f.noReturn()
}

func (f *flow) noReturn() error {
	hop := ""
	if f.p.deps.Hops != nil {
		hop = f.p.deps.Hops.LastHop(f.tuple)
	}
	if hop == "" {
		return fmt.Errorf("chain %s: %w within %s", f.route.chain, errNoReturn, f.vs.timeouts.Connect)
	}
	return fmt.Errorf("chain %s: device %s did not return the flow: %w within %s", f.route.chain, hop, errNoReturn, f.vs.timeouts.Connect)
}

func helloReason(err error) Reason {
	var ne net.Error
	switch {
	case errors.Is(err, hello.ErrGarbage):
		return ReasonHelloGarbage
	case errors.Is(err, hello.ErrTooLarge):
		return ReasonHelloTooLarge
	case errors.As(err, &ne) && ne.Timeout():
		return ReasonHelloTimeout
	}
	return ReasonClientGone
}

func handshakeReason(err error) Reason {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return ReasonHandshakeTimeout
	}
	return ReasonHandshakeFailed
}

func innerReason(err error) Reason {
	if errors.Is(err, errNoReturn) {
		return ReasonNoReturn
	}
	return ReasonInnerFailed
}
