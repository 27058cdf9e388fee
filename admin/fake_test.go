package admin

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/session"
)

// fakeTable is a session table of n connections of three legs each, made as they are asked for.
type fakeTable struct {
	legs   []session.Session
	killed session.ID
	broken error // after the last
}

func (t *fakeTable) All(context.Context) iter.Seq2[*session.Session, error] {
	return func(yield func(*session.Session, error) bool) {
		for i := range t.legs {
			if !yield(&t.legs[i], nil) {
				return
			}
		}
		if t.broken != nil {
			yield(nil, t.broken)
		}
	}
}

func (t *fakeTable) Tree(id session.ID) ([]session.Session, error) {
	root := session.ID(0)
	for _, leg := range t.legs {
		if leg.ID == id {
			root = leg.Root
		}
	}
	var tree []session.Session
	for _, leg := range t.legs {
		if root != 0 && leg.Root == root {
			tree = append(tree, leg)
		}
	}
	if tree == nil {
		return nil, fmt.Errorf("session %x: %w", uint64(id), ErrNotFound)
	}
	return tree, nil
}

func (t *fakeTable) Kill(id session.ID) error {
	t.killed = id
	_, err := t.Tree(id)
	return err
}

func (t *fakeTable) Names() Names       { return fakeNames{} }
func (t *fakeTable) Now() time.Duration { return time.Hour }

type fakeNames struct{}

func (fakeNames) Link(id session.LinkID) string {
	return list("", "front", "a1", "a2", "b1", "b2", "back")(int(id))
}
func (fakeNames) Device(id session.DeviceID) string { return list("", "ips1", "waf1")(int(id)) }
func (fakeNames) Pool(id session.PoolID) string     { return list("", "ips", "waf")(int(id)) }
func (fakeNames) Chain(id session.ChainID) string   { return list("", "inspect \"all\"")(int(id)) }

func list(names ...string) func(int) string {
	return func(i int) string {
		if i < len(names) {
			return names[i]
		}
		return fmt.Sprintf("#%d", i)
	}
}

// connections makes the tree of DESIGN's example n times.
func connections(n int) *fakeTable {
	t := &fakeTable{}
	for i := range n {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(1024+i%60000))
		tuple := session.Tuple{Proto: session.TCP, Src: client, Dst: netip.MustParseAddrPort("192.0.2.10:80")}
		root := session.ID(3*i + 1)
		for leg := range session.ID(3) {
			s := session.Session{ID: root + leg, Root: root, Chain: 1, Position: int(leg), State: session.Established,
				Orig:    session.Key{Tuple: tuple, Link: session.LinkID(2*leg + 1)},
				Reply:   session.Key{Tuple: tuple.Reverse(), Link: session.LinkID(2*leg + 2)},
				Created: time.Hour - 12345*time.Millisecond, Seen: time.Hour - 21*time.Millisecond,
				Packets: [2]uint64{1200, 86000}, Bytes: [2]uint64{98765, 123456789}}
			if leg > 0 {
				s.Parent, s.InDevice = s.ID-1, session.DeviceID(leg)
			}
			if leg < 2 {
				s.Child, s.Device, s.Pool = s.ID+1, session.DeviceID(leg+1), session.PoolID(leg+1)
			}
			t.legs = append(t.legs, s)
		}
	}
	return t
}

type fakeState struct{ devices []api.Device }

func (fakeState) Status() api.Status            { return api.Status{Version: "test", PID: 7} }
func (s *fakeState) Devices() []api.Device      { return s.devices }
func (fakeState) Links() []api.Link             { return []api.Link{{Name: "front"}, {Name: "a1"}, {Name: "a2"}} }
func (fakeState) Counters() api.Counters        { return api.Counters{Sessions: 3} }
func (fakeState) ServerPools() []api.ServerPool { return nil }
func (fakeState) Connections() []api.Connection {
	leg := connections(2).legs[3].Orig
	return []api.Connection{
		{Client: leg.Src, Server: leg.Dst, Listen: netip.MustParseAddrPort("192.0.2.10:443"), ServerName: "shop.test"},
		{Client: netip.MustParseAddrPort("[2001:db8::1]:5000"), Listen: netip.MustParseAddrPort("[2001:db8::10]:443")},
	}
}
func (fakeState) Explain(q api.Question) (api.Explanation, error) {
	return api.Explanation{Question: q, Running: true, VirtualServer: "shop"}, nil
}

// Trace never ends by itself.
func (fakeState) Trace(ctx context.Context, _ TraceFilter, emit func(api.TraceEvent) error) error {
	for i := uint64(1); ctx.Err() == nil; i++ {
		if err := emit(api.TraceEvent{Connection: i, Kind: api.TraceOpen}); err != nil {
			return err
		}
	}
	return nil
}
func (fakeState) VirtualServers() []api.VirtualServer {
	return []api.VirtualServer{{Name: "shop", Type: "https"}}
}
func (fakeState) Ledger() ([]api.LedgerEntry, error) {
	return []api.LedgerEntry{{Chain: "inspect", Reason: "device-down", Source: "kernel", Bytes: 5}}, nil
}
func (fakeState) Chains() []api.Chain {
	return []api.Chain{{Name: `inspect "all"`, Pools: []api.Pool{{Name: "ips"}, {Name: "waf"}}}}
}
func (fakeState) Events(after uint64, limit int) []api.Event {
	var events []api.Event
	for seq := after + 1; seq <= 3 && len(events) < limit; seq++ {
		events = append(events, api.Event{Seq: seq, Kind: "device"})
	}
	return events
}

// fakeControl notes what it was asked.
type fakeControl struct {
	state  *fakeState
	calls  []string
	reload error
}

func (c *fakeControl) Operate(_ context.Context, device, action, who string) error {
	c.calls = append(c.calls, device+" "+action+" "+who)
	for i := range c.state.devices {
		if d := &c.state.devices[i]; d.Name == device {
			d.Operator = &api.Decision{Action: action, By: who}
			return nil
		}
	}
	return fmt.Errorf("device %q: %w", device, ErrNotFound)
}

func (c *fakeControl) Reload(context.Context) (api.Reload, error) {
	return api.Reload{Changes: []string{"chain inspect: pools changed"}}, c.reload
}

type fixture struct {
	*client.Client
	table   *fakeTable
	control *fakeControl
	socket  string
}

// serve runs a server on a real socket.
func serve(t testing.TB, table *fakeTable) fixture {
	t.Helper()
	state := &fakeState{devices: []api.Device{{Name: "ips1", State: "up"}, {Name: "waf1", State: "down"}}}
	control := &fakeControl{state: state}
	socket := filepath.Join(t.TempDir(), "run", "admin.sock")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Deps{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Sessions: table, State: state, Control: control})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return fixture{client.New(socket), table, control, socket}
}
