package app

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"sslo/admin"
	"sslo/admin/api"
	"sslo/datapath"
	"sslo/session"
)

// sessions shows the session plane's table to the admin API.
type sessions struct{ *App }

// All implements admin.Sessions.
func (s sessions) All(ctx context.Context) iter.Seq2[*session.Session, error] { return s.dp.All(ctx) }

// Tree implements admin.Sessions.
func (s sessions) Tree(id session.ID) ([]session.Session, error) {
	tree, err := s.dp.Tree(id)
	return tree, notFound(id, err)
}

// Kill implements admin.Sessions: packets to both ends, and our own sockets without waiting for those.
func (s sessions) Kill(id session.ID) error {
	tree, err := s.Tree(id)
	if err != nil {
		return err
	}
	err = notFound(id, s.dp.Reset(id))
	s.proxy.Abort(tree[0].Orig.Tuple)
	return err
}

func notFound(id session.ID, err error) error {
	if errors.Is(err, datapath.ErrNoSession) {
		return fmt.Errorf("session %s: %w", api.ID(id), admin.ErrNotFound)
	}
	return err
}

// Names implements admin.Sessions.
func (s sessions) Names() admin.Names { return s.dp.Names() }

// Now implements admin.Sessions.
func (s sessions) Now() time.Duration { return datapath.Now() }

// hops finds where a connection got stuck, for the proxy's message.
type hops struct{ dp *datapath.Datapath }

// LastHop implements proxy.Hops.
func (h hops) LastHop(inner session.Tuple) string {
	tree, err := h.dp.Find(inner)
	if err != nil {
		return ""
	}
	return h.dp.Names().Device(keeper(tree))
}

// keeper is the device that kept a flow: answers went into it and did not come out, or no answer came
// and the newest leg goes into it. 0 when it reached back, which has not answered.
func keeper(tree []session.Session) session.DeviceID {
	last := len(tree) - 1
	for i := last; i > 0; i-- {
		if tree[i].Packets[session.Reply] > 0 && tree[i-1].Packets[session.Reply] == 0 {
			return tree[i-1].Device
		}
	}
	return tree[last].Device
}
