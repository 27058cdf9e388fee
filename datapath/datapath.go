package datapath

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"sslo/chain"
	"sslo/session"
)

// Errors that callers tell apart.
var (
	ErrClash     = errors.New("clashes with what the host has")
	ErrUnknown   = errors.New("unknown name")
	ErrNoSession = errors.New("no such session")
	ErrMTU       = errors.New("unequal MTU")
	ErrNoLink    = errors.New("no such interface")
	ErrNotSet    = errors.New("no plan applied yet")
)

// The virtual links between the proxies and the session plane.
const (
	frontLink = "front0"
	frontPeer = "front1"
	backLink  = "back0"
	backPeer  = "back1"
)

// Options of Open.
type Options struct {
	PinPath  string // directory on a bpffs; default /sys/fs/bpf/sslo
	StateDir string // default /run/sslo
	Logger   *slog.Logger
}

// Datapath is the kernel's side of the box. Its methods may be called from any goroutine.
// Open binds it to the network namespace of the calling thread; Apply and Teardown must be
// called from that namespace too (they write /proc/sys/net).
type Datapath struct{}

var errTODO = errors.New("not built yet")

// Open loads the programs and maps, or adopts those that an earlier process left pinned.
func Open(o Options) (*Datapath, error) { return nil, errTODO }

// Apply makes the kernel match the plan. It changes only what differs.
func (d *Datapath) Apply(ctx context.Context, p Plan) error { return errTODO }

// Run collects garbage, writes the heartbeat, delivers events and link changes, and resets
// sessions that the programs ask to be reset, until ctx is done.
func (d *Datapath) Run(ctx context.Context) error { return errTODO }

// Close stops using the kernel's state and leaves it working.
func (d *Datapath) Close() error { return errTODO }

// Teardown removes everything that Open and Apply made and restores what they changed.
func (d *Datapath) Teardown() error { return errTODO }

// SetDevice tells the session plane which traffic a device may get.
func (d *Datapath) SetDevice(name string, st chain.DeviceStatus) error { return errTODO }

// DeviceStatus is a device's status as the kernel has it, also after adoption.
func (d *Datapath) DeviceStatus(name string) (chain.DeviceStatus, bool) {
	return chain.DeviceStatus{}, false
}

// ChainMark is the SO_MARK of a chain's inner connections.
func (d *Datapath) ChainMark(name string) (uint32, bool) { return 0, false }

// FrontLink is the interface that inner connections are dialled on.
func (d *Datapath) FrontLink() string { return frontLink }

// BackLink is the interface that inner connections are accepted on.
func (d *Datapath) BackLink() string { return backLink }

// RegisterBackListener makes a listener bound to BackLink accept any address and port there.
// IPv4 and IPv6 need a listener each.
func (d *Datapath) RegisterBackListener(l syscall.Conn) error { return errTODO }

// Sessions lists at most limit sessions (0: all) that match the filter.
func (d *Datapath) Sessions(f Filter, limit int) (SessionList, error) { return SessionList{}, errTODO }

// Session finds one session.
func (d *Datapath) Session(id session.ID) (session.Session, error) { return session.Session{}, errTODO }

// Tree is the whole tree that a session belongs to, root first, child after parent.
func (d *Datapath) Tree(id session.ID) ([]session.Session, error) { return nil, errTODO }

// Links lists the links, the virtual ones included.
func (d *Datapath) Links() ([]LinkStatus, error) { return nil, errTODO }

// DeviceStats lists the devices' counters.
func (d *Datapath) DeviceStats() ([]DeviceStats, error) { return nil, errTODO }

// Ledger lists what skipped devices.
func (d *Datapath) Ledger() ([]LedgerEntry, error) { return nil, errTODO }

// Drops lists the non-zero drop counters.
func (d *Datapath) Drops() ([]Drop, error) { return nil, errTODO }

// Names is the present mapping of ids to names.
func (d *Datapath) Names() Names { return Names{} }

// Events delivers what the session plane reports while Run runs. A slow reader loses the newest.
func (d *Datapath) Events() <-chan Event { return nil }

// LinkChanges delivers changes of the plan's links while Run runs.
func (d *Datapath) LinkChanges() <-chan LinkChange { return nil }

// Suspicions lists devices that have kept frames for longer than after.
func (d *Datapath) Suspicions(after time.Duration) ([]Suspicion, error) { return nil, errTODO }

// Reset ends a session's whole tree: RST to both ends, nothing passes any more.
func (d *Datapath) Reset(id session.ID) error { return errTODO }

// CollectGarbage removes what has expired at now (CLOCK_MONOTONIC, see Now).
func (d *Datapath) CollectGarbage(now time.Duration) (GCStats, error) { return GCStats{}, errTODO }

// Now is the clock of sessions and events: CLOCK_MONOTONIC.
func Now() time.Duration { return 0 }
