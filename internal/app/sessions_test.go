package app

import (
	"testing"

	"sslo/session"
)

func TestKeeper(t *testing.T) {
	leg := func(device session.DeviceID, orig, reply uint64) session.Session {
		return session.Session{Device: device, Packets: [2]uint64{orig, reply}}
	}
	for name, tc := range map[string]struct {
		tree []session.Session
		want session.DeviceID
	}{
		"the first keeps the SYN":    {[]session.Session{leg(1, 3, 0)}, 1},
		"the second keeps the SYN":   {[]session.Session{leg(1, 3, 0), leg(2, 3, 0)}, 2},
		"the first keeps the answer": {[]session.Session{leg(1, 3, 0), leg(2, 3, 3), leg(0, 3, 3)}, 1},
		"the last keeps the answer":  {[]session.Session{leg(1, 3, 0), leg(2, 3, 0), leg(0, 3, 3)}, 2},
		"a device answers by itself": {[]session.Session{leg(1, 3, 3)}, 1},
		"back does not answer":       {[]session.Session{leg(1, 3, 0), leg(2, 3, 0), leg(0, 3, 0)}, 0},
	} {
		if got := keeper(tc.tree); got != tc.want {
			t.Errorf("%s: device %d, want %d", name, got, tc.want)
		}
	}
}
