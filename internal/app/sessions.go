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
func (s sessions) All(ctx context.Context) iter.Seq2[*session.Session, error] {
	return func(yield func(*session.Session, error) bool) {
		list, err := s.dp.Sessions(datapath.Filter{}, 0)
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range list.Sessions {
			if !yield(&list.Sessions[i], nil) {
				return
			}
		}
	}
}

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

// LastHop implements proxy.Hops: the device of the last leg of the connection's tree.
func (h hops) LastHop(inner session.Tuple) string {
	return ""
}
