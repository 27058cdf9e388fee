package proxy

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"sslo/proxy/sock"
)

// listenKey is what the kernel sees of a listener.
type listenKey struct {
	nic  string
	addr netip.AddrPort
}

// listener accepts clients of one address on one client link.
type listener struct {
	key    listenKey
	l      *net.TCPListener
	target atomic.Pointer[target]
}

// target is whom new connections are for.
type target struct {
	vs   *virtual
	link string
}

func targets(vss []*virtual) map[listenKey]*target {
	m := map[listenKey]*target{}
	for _, v := range vss {
		for _, l := range v.cfg.Links {
			for _, a := range v.cfg.Listen {
				m[listenKey{l.NIC, netip.AddrPortFrom(a.Addr().Unmap(), a.Port())}] = &target{v, l.Name}
			}
		}
	}
	return m
}

// openMissing opens the listeners that are wanted and not there; on an error none of them stays.
func (p *Proxy) openMissing(want map[listenKey]*target) ([]*listener, error) {
	var opened []*listener
	for k, t := range want {
		if p.listeners[k] != nil {
			continue
		}
		l, err := sock.Listen(k.addr, sock.Options{Device: k.nic, Transparent: k.nic != ""})
		if err != nil {
			for _, o := range opened {
				o.l.Close()
			}
			return nil, err
		}
		n := &listener{key: k, l: l}
		n.target.Store(t)
		opened = append(opened, n)
	}
	return opened, nil
}

// settle makes the set of listeners the wanted one: new ones accept, kept ones get their new target.
func (p *Proxy) settle(want map[listenKey]*target, opened []*listener) {
	for k, l := range p.listeners {
		if t := want[k]; t != nil {
			l.target.Store(t)
			continue
		}
		l.l.Close()
		delete(p.listeners, k)
	}
	for _, l := range opened {
		p.listeners[l.key] = l
		p.wg.Go(func() { p.acceptLoop(l.l, func(c *net.TCPConn) { p.accepted(l, c) }, l) })
	}
}

// acceptLoop ends when the listener is closed.
func (p *Proxy) acceptLoop(l *net.TCPListener, accepted func(*net.TCPConn), client *listener) {
	for {
		c, err := l.AcceptTCP()
		switch {
		case err == nil:
			accepted(c)
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			p.noDescriptors(l, client)
		default: // the client is gone already, or the kernel is short of memory
			p.limiter.warn(p.log, "accept failed", "err", err)
			time.Sleep(time.Millisecond)
		}
	}
}

// noDescriptors refuses one connection when there is no descriptor to accept it with.
func (p *Proxy) noDescriptors(l *net.TCPListener, client *listener) {
	if !p.spare.Refuse(l) {
		time.Sleep(10 * time.Millisecond)
		return
	}
	if client == nil {
		return
	}
	st := client.target.Load().vs.stats
	st.total.Add(1)
	st.ended[ReasonDescriptors].Add(1)
	p.limiter.warn(p.log, "no descriptors left: connection refused", "virtual_server", client.target.Load().vs.cfg.Name,
		"reason", ReasonDescriptors.String())
}
