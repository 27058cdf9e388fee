package model

import (
	"errors"
	"fmt"
	"time"

	"sslo/session"
)

// Check says which of the invariants of the session plane do not hold now.
func (m *Model) Check(now time.Duration) error {
	var errs []error
	for id, s := range m.Sessions {
		errs = append(errs, m.checkKeys(id, s), m.checkParent(s), m.checkChild(s), m.checkHop(s))
	}
	for key, f := range m.Flows {
		errs = append(errs, m.checkFlow(key, f))
	}
	for key, e := range m.Expectations {
		errs = append(errs, m.checkExpectation(key, e, now))
	}
	return errors.Join(append(errs, m.checkActive())...)
}

// checkKeys: a session owns its two keys.
func (m *Model) checkKeys(id session.ID, s *session.Session) error {
	if s.ID != id {
		return fmt.Errorf("session %d is filed as %d", s.ID, id)
	}
	if m.Flows[s.Orig] != (Flow{id, session.Orig}) || m.Flows[s.Reply] != (Flow{id, session.Reply}) {
		return fmt.Errorf("session %d does not own its keys", id)
	}
	return nil
}

// checkFlow: no key belongs to anything but the one session that says so.
func (m *Model) checkFlow(key session.Key, f Flow) error {
	s := m.Sessions[f.Session]
	if s == nil {
		return fmt.Errorf("%v on link %d belongs to session %d, which is no more", key.Tuple, key.Link, f.Session)
	}
	if (f.Dir == session.Orig && s.Orig != key) || (f.Dir == session.Reply && s.Reply != key) {
		return fmt.Errorf("%v on link %d is not a key of session %d", key.Tuple, key.Link, f.Session)
	}
	return nil
}

// checkParent: the parent names the session as its child, and the root is the top.
func (m *Model) checkParent(s *session.Session) error {
	if s.Parent == 0 {
		if s.Root != s.ID || s.InDevice != 0 || m.role(s.Orig.Link) != Front {
			return fmt.Errorf("session %d has no parent but is no root session", s.ID)
		}
		return nil
	}
	p := m.Sessions[s.Parent]
	switch {
	case p == nil || p.Child != s.ID:
		return fmt.Errorf("session %d: its parent %d does not know it", s.ID, s.Parent)
	case p.Root != s.Root || p.Chain != s.Chain || p.Device != s.InDevice || p.Position >= s.First:
		return fmt.Errorf("session %d does not follow on its parent %d", s.ID, s.Parent)
	case (p.Flags&session.BypassOut != 0) != (s.Flags&session.BypassIn != 0):
		return fmt.Errorf("session %d and its parent %d disagree on the bypass", s.ID, s.Parent)
	}
	return nil
}

func (m *Model) checkChild(s *session.Session) error {
	if s.Child == 0 {
		return nil
	}
	if c := m.Sessions[s.Child]; c == nil || c.Parent != s.ID {
		return fmt.Errorf("session %d: its child %d does not know it", s.ID, s.Child)
	}
	return nil
}

// checkHop: the next hop is a device of the pool at the position, or the last leg.
func (m *Model) checkHop(s *session.Session) error {
	pools := m.Chains[s.Chain]
	if s.Device == 0 {
		if s.Position != len(pools) || s.Reply.Link != m.Back {
			return fmt.Errorf("session %d is on no proper last leg", s.ID)
		}
		return nil
	}
	if s.Position >= len(pools) || pools[s.Position] != s.Pool || s.Reply.Link != m.Devices[s.Device].In {
		return fmt.Errorf("session %d has a device that is not at its position", s.ID)
	}
	return nil
}

// checkExpectation: an expectation dies with its parent, and has one only while there is no child.
func (m *Model) checkExpectation(key session.Key, e session.Expectation, now time.Duration) error {
	s := m.Sessions[e.Session]
	switch {
	case s == nil:
		return fmt.Errorf("the expectation of %v outlived session %d", key.Tuple, e.Session)
	case s.Child != 0:
		return fmt.Errorf("session %d has a child and still expects one", s.ID)
	case key != m.expected(s):
		return fmt.Errorf("session %d expects %v on the wrong link %d", s.ID, key.Tuple, key.Link)
	case e.Created > now:
		return fmt.Errorf("the expectation of session %d is from the future", s.ID)
	}
	return nil
}

// checkActive: a device has as many sessions as name it.
func (m *Model) checkActive() error {
	active := map[session.DeviceID]uint64{}
	for _, s := range m.Sessions {
		if s.Device != 0 {
			active[s.Device]++
		}
	}
	for id := range m.Devices {
		if active[id] != m.Active[id] {
			return fmt.Errorf("device %d: %d sessions, %d counted", id, active[id], m.Active[id])
		}
	}
	return nil
}
