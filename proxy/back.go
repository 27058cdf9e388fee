package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"sslo/proxy/pool"
	"sslo/proxy/relay"
	"sslo/proxy/sock"
	"sslo/session"
)

// openBack opens the listeners for what comes out of the chain: one a family, on any port, because the
// session plane hands them every connection of the back link whatever its address and port.
func (p *Proxy) openBack() error {
	addrs := []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:0"), netip.MustParseAddrPort("[::]:0")}
	opts := sock.Options{Device: p.deps.BackLink, Transparent: true}
	if p.deps.BackLink == "" {
		addrs, opts = []netip.AddrPort{p.deps.InnerAddr}, sock.Options{}
	}
	for _, a := range addrs {
		l, err := sock.Listen(a, opts)
		if err != nil {
			return fmt.Errorf("back: %w", err)
		}
		p.backs = append(p.backs, l)
		if p.deps.InnerAddr.Port() == 0 && p.deps.BackLink == "" {
			p.deps.InnerAddr = l.Addr().(*net.TCPAddr).AddrPort()
		}
		if p.deps.RegisterBack == nil {
			continue
		}
		if err := p.deps.RegisterBack(l); err != nil {
			return fmt.Errorf("back: register listener: %w", err)
		}
	}
	return nil
}

// acceptedBack finds the flow of a connection that came out of the chain. One that no front made is reset.
func (p *Proxy) acceptedBack(c *net.TCPConn) {
	t := session.Tuple{Proto: session.TCP, Src: addrOf(c.RemoteAddr()), Dst: addrOf(c.LocalAddr())}
	f := p.table.get(t)
	if f == nil || f.route.collapsed || !f.attach() {
		p.backUnknown.Add(1)
		p.log.Debug("back: connection that no front made", "session", t.String())
		sock.Reset(c)
		return
	}
	p.wg.Go(func() { grown(func() { f.back(c) }) })
}

// back runs the server's half of a flow to its end.
func (f *flow) back(c *net.TCPConn) {
	defer f.leave()
	inner, err := relay.NewPlain(c, f.p.bufs, nil)
	if err != nil {
		sock.Reset(c)
		f.abort(ReasonInternal, err)
		return
	}
	if f.add(inner) {
		f.toServer(inner, sideInner)
	}
}

// toServer joins a stream to a member of the server pool.
func (f *flow) toServer(near relay.Stream, s side) {
	server, err := f.route.pool.Connect(f.request())
	if err != nil {
		f.end(serverReason(err), err)
		near.Reset()
		return
	}
	defer server.Done()
	if !f.add(server) {
		server.StopReading()
		return
	}
	f.note(func(c *Conn) { c.Member, c.Stage, c.ToServer = server.Member, "open", server.State })
	h := &half{f: f, near: near, far: server.Stream, nearSide: s, farSide: sideServer}
	var up, down *atomic.Uint64 = new(atomic.Uint64), new(atomic.Uint64)
	if s == sideClient {
		up, down = &f.up, &f.down
	}
	h.run(up, down)
}

func serverReason(err error) Reason {
	if errors.Is(err, pool.ErrHandshake) {
		return ReasonServerHandshake
	}
	return ReasonNoServer
}

func addrOf(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
