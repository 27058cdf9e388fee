package datapath

import (
	"context"
	"errors"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// pollLinks is how often links are looked at without being told: real NICs may report late.
const pollLinks = 250 * time.Millisecond

// subscribeLinks opens the socket in the calling thread's network namespace.
func subscribeLinks() (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return nil, err
	}
	tv := unix.NsecToTimeval(int64(pollLinks))
	return s, s.SetReceiveTimeout(&tv)
}

// LinkChanges delivers the plan's links' states while Run runs: each once at first, then changes.
func (d *Datapath) LinkChanges() <-chan LinkChange { return d.changes }

// linkState is what a link is compared by.
type linkState struct {
	index       int
	mac         [6]byte
	up, carrier bool
}

// watchLinks looks whenever the kernel says that some link changed, and when it says nothing.
// What the messages say does not matter, so lost ones do not either.
func (d *Datapath) watchLinks(ctx context.Context) {
	known := map[string]linkState{}
	for ctx.Err() == nil {
		d.lookAtLinks(ctx, known)
		_, _, err := d.links.Receive()
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			d.log.Warn("link messages lost", "err", err)
			sleep(ctx, pollLinks)
		}
	}
}

func sleep(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}

func (d *Datapath) lookAtLinks(ctx context.Context, known map[string]linkState) {
	d.mu.Lock()
	links := d.plan.Links
	d.mu.Unlock()
	for _, l := range links {
		now, before := d.linkState(l.NIC), known[l.Name]
		_, seen := known[l.Name]
		if seen && now == before {
			continue
		}
		known[l.Name] = now
		if seen && (now.index != before.index || now.mac != before.mac) {
			d.reattach(l)
		}
		if seen && now.carrier && !before.carrier {
			d.tellNeighbours(l.NIC)
		}
		if !seen || now.up != before.up || now.carrier != before.carrier {
			d.changed(ctx, LinkChange{Link: l.Name, Up: now.up && now.carrier, Carrier: now.carrier, At: time.Now()})
		}
	}
}

// changed waits for the reader: a lost link change would leave a dead device in service.
func (d *Datapath) changed(ctx context.Context, c LinkChange) {
	select {
	case d.changes <- c:
	case <-ctx.Done():
	}
}

func (d *Datapath) linkState(nic string) linkState {
	l, err := d.host.link(nic)
	if err != nil {
		return linkState{}
	}
	a := l.Attrs()
	return linkState{a.Index, mac(a.HardwareAddr), isUp(l), carrier(l)}
}

// reattach takes a link whose interface is gone out of use, and one that came back as another
// interface in use again.
func (d *Datapath) reattach(l Link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.host.ns.do(func() error {
		there, err := d.present(&d.plan)
		if err != nil {
			return err
		}
		return errors.Join(d.host.refresh(there, d.slots(&d.plan)), d.fillLinks(there), d.attachAll(there))
	})
	if err != nil {
		d.log.Warn("interface changed, not all is in use", "link", l.Name, "nic", l.NIC, "err", err)
		return
	}
	d.log.Info("interface was replaced", "link", l.Name, "nic", l.NIC)
}

func (d *Datapath) tellNeighbours(nic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host.reannounce(nic)
}
