package app

import (
	"slices"
	"testing"
	"time"

	"sslo/chain"
	"sslo/config"
)

func TestGrowingWeights(t *testing.T) {
	ages := map[string]time.Duration{"old": time.Hour, "new": time.Second, "half": 15 * time.Second}
	pool := func(m chain.Method, slow time.Duration, devices ...config.PoolDevice) *config.DevicePool {
		return &config.DevicePool{Method: m, SlowStart: slow, Devices: devices}
	}
	d := func(name string, w int) config.PoolDevice { return config.PoolDevice{Device: name, Weight: w} }
	for _, tt := range []struct {
		name string
		pool *config.DevicePool
		want []int
	}{
		{"off", pool(chain.Weighted, 0, d("old", 1), d("new", 1)), nil},
		{"all have theirs", pool(chain.Weighted, 30*time.Second, d("old", 1), d("old", 3)), nil},
		{"down ones do not count", pool(chain.Weighted, 30*time.Second, d("old", 1), d("down", 3)), nil},
		{"half", pool(chain.Weighted, 30*time.Second, d("old", 2), d("half", 4)), []int{2000, 2000}},
		{"not without anything", pool(chain.RoundRobin, 30*time.Second, d("old", 1), d("new", 1)), []int{1000, 50}},
		{"heavy ones fit", pool(chain.Weighted, 30*time.Second, d("old", 65535), d("half", 65534)), []int{65535, 32767}},
		{"methods without weights", pool(chain.LeastSessions, 30*time.Second, d("old", 1), d("half", 1)), nil},
	} {
		if got := growingWeights(tt.pool, func(n string) time.Duration { return ages[n] }); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
