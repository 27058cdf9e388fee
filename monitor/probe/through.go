package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/google/gopacket/layers"

	"sslo/monitor"
	"sslo/monitor/probe/tinytcp"
)

// ThroughSpec: a real connection from one NIC of the box through a device to a responder of the
// box's own on the other NIC.
//
// Both ends are the prober's: it makes the packets itself, so that nothing of it depends on the
// box's addresses, routes and sockets, or on the traffic that the device has otherwise. The session
// plane knows the reserved addresses and keeps these packets from its table and from the kernel.
type ThroughSpec struct {
	PathSpec
	Kind     ThroughKind
	Client   netip.Addr
	Server   netip.AddrPort
	Request  HTTPRequest // with ThroughHTTP
	Negative bool        // good is a request that is not answered by the responder
}

// ThroughKind is what is sent through a device.
type ThroughKind uint8

// The kinds of ThroughSpec.
const (
	ThroughTCP ThroughKind = iota
	ThroughHTTP
	ThroughUDP
)

var throughNames = [...]string{"tcp", "http", "udp"}

// errNotBlocked is what a negative probe finds wrong.
var errNotBlocked = errors.New("the device let a bad request pass")

// Through probes a device by a connection through it.
type Through struct {
	spec     ThroughSpec
	exchange *exchange
	nics     [2]*nic // in, out
	hosts    [2]*tinytcp.Stack
	reached  atomic.Uint64 // requests that the responder got
}

func (s ThroughSpec) String() string {
	text := fmt.Sprintf("%s through %s→%s to %s", throughNames[s.Kind], nicName(s.In, s.InVLAN), nicName(s.Out, s.OutVLAN), s.Server)
	if s.Kind == ThroughHTTP {
		text += s.Request.Path
	}
	if s.Negative {
		text += " must be blocked"
	}
	return text
}

// Open is part of Spec. The NICs need not be there yet, and may go and come back.
func (s ThroughSpec) Open() (Prober, error) {
	t := &Through{spec: s}
	var err error
	if t.exchange, err = newExchange(s.Request, nil, s.Server); err != nil {
		return nil, err
	}
	proto := layers.EthernetTypeIPv4
	if s.Client.Is6() {
		proto = layers.EthernetTypeIPv6
	}
	for i, name := range []string{s.In, s.Out} {
		if t.nics[i], err = openNIC(name, proto); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	for i, addr := range []netip.Addr{s.Client, s.Server.Addr()} {
		t.hosts[i] = tinytcp.New(addr, func(packet []byte) error { return t.send(i, packet) })
		go t.nics[i].receive(func(frame []byte) { t.receive(i, frame) })
	}
	t.hosts[1].Admit(t.hosts[0].Has)
	t.serve()
	return t, nil
}

// Close is part of Prober.
func (t *Through) Close() error {
	var errs []error
	for i, n := range t.nics {
		if t.hosts[i] != nil {
			t.hosts[i].Close()
		}
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// send gives a packet the addresses that take it through the device: from one NIC to the other.
func (t *Through) send(end int, packet []byte) error {
	from, to, vlan := t.nics[end], t.nics[1-end], []int{t.spec.InVLAN, t.spec.OutVLAN}[end]
	frame, err := frameOf(from.hardwareAddr(), to.hardwareAddr(), vlan, layers.EthernetType(from.proto), packet)
	if err != nil {
		return err
	}
	return from.send(frame)
}

func (t *Through) receive(end int, frame []byte) {
	const header = 14
	if len(frame) > header {
		t.hosts[end].Deliver(append([]byte(nil), frame[header:]...))
	}
}

// Probe is part of Prober.
func (t *Through) Probe(ctx context.Context) monitor.Result {
	for _, n := range t.nics {
		if err := n.refresh(); err != nil {
			return monitor.Result{Reason: err.Error()}
		}
	}
	if !t.spec.Negative {
		return timed(ctx, func() (string, error) { return "", t.attempt(ctx) })
	}
	return timed(context.Background(), func() (string, error) {
		err := t.attempt(ctx)
		if err == nil {
			return "", errNotBlocked
		}
		return "blocked: " + reason(ctx, err), nil
	})
}

func (t *Through) attempt(ctx context.Context) error {
	if t.spec.Kind == ThroughUDP {
		return t.echo(ctx)
	}
	before := t.reached.Load()
	conn, err := t.hosts[0].Dial(ctx, t.spec.Server)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	if t.spec.Kind == ThroughHTTP {
		err = t.exchange.do(ctx, conn)
	}
	if err != nil {
		conn.Abort()
		return t.explain(ctx, err, t.reached.Load() > before)
	}
	return conn.Close()
}

// explain tells whether it was the request or its answer that did not pass.
func (t *Through) explain(ctx context.Context, err error, reached bool) error {
	text := reason(ctx, err)
	switch {
	case strings.HasPrefix(text, "status ") && !reached:
		return explained("answered by the device: " + text)
	case reached:
		return explained("the request passed, its answer did not: " + text)
	}
	return explained("the request did not pass: " + text)
}

// serve is the responder.
func (t *Through) serve() {
	server := t.hosts[1]
	server.Listen(t.spec.Server.Port(), func(c *tinytcp.Conn) {
		defer c.Close()
		if t.spec.Kind == ThroughHTTP {
			t.respond(c)
			return
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(c, maxBody))
	})
	server.ListenUDP(t.spec.Server.Port(), func(from netip.AddrPort, data []byte) {
		_ = server.SendUDP(t.spec.Server.Port(), from, data)
	})
}

// responderBody is what the responder answers to everything.
const responderBody = "sslo responder\n"

func (t *Through) respond(c *tinytcp.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	t.reached.Add(1)
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nServer: sslo\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(responderBody))
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(c, responderBody)
	}
}

// echo sends a datagram, which the responder sends back.
func (t *Through) echo(ctx context.Context) error {
	client := t.hosts[0]
	port, came := client.FreeUDP(), make(chan struct{}, 1)
	text := fmt.Sprintf("sslo monitor %d", port)
	client.ListenUDP(port, func(_ netip.AddrPort, data []byte) {
		if string(data) == text {
			select {
			case came <- struct{}{}:
			default:
			}
		}
	})
	defer client.ListenUDP(port, nil)
	if err := client.SendUDP(port, t.spec.Server, []byte(text)); err != nil {
		return err
	}
	select {
	case <-came:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
