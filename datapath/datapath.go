package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sslo/bpf"
	"sslo/chain"
)

// Errors that callers tell apart.
var (
	ErrClash     = errors.New("clashes with what the host has")
	ErrUnknown   = errors.New("unknown name")
	ErrNoSession = errors.New("no such session")
	ErrMTU       = errors.New("unequal MTU")
	ErrNoLink    = errors.New("no such interface")
	ErrNotSet    = errors.New("no plan applied yet")
	ErrBusy      = errors.New("another process runs this datapath")
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

// Datapath is the kernel's side of the box, in the network namespace of the thread that called
// Open. Its methods may be called from any goroutine, but Close and Teardown only after Run has
// returned.
type Datapath struct {
	pin   string
	log   *slog.Logger
	lock  *os.File
	links *nl.NetlinkSocket // link messages

	mu       sync.Mutex // guards what follows
	host     *host
	st       *store
	kernel   *kernel // nil until a plan was applied or pins were adopted
	plan     Plan
	settings bpf.SsloSettings

	names      atomic.Pointer[Names]
	events     chan Event
	changes    chan LinkChange
	dead       chan uint16 // devices that went out of service, for attendTo
	lostEvents atomic.Uint64
}

// Open binds to the calling thread's network namespace and adopts the programs and maps that an
// earlier process left pinned, if there are any.
func Open(o Options) (*Datapath, error) {
	d := &Datapath{pin: o.PinPath, log: o.Logger, events: make(chan Event, 4096), changes: make(chan LinkChange, 256),
		dead: make(chan uint16, 64)}
	if d.pin == "" {
		d.pin = bpffsRoot + "/sslo"
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if o.StateDir == "" {
		o.StateDir = "/run/sslo"
	}
	if err := d.open(o.StateDir); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Datapath) open(dir string) (err error) {
	if d.lock, err = lockDir(dir); err != nil {
		return err
	}
	if d.st, err = openStore(dir); err != nil {
		return err
	}
	if d.host, err = openHost(d.st, d.log); err != nil {
		return err
	}
	if d.links, err = subscribeLinks(); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	d.publishNames()
	if !pinned(d.pin) {
		return nil
	}
	d.kernel, err = loadKernel(d.pin, 0, d.log)
	return err
}

// lockDir keeps a second process from changing the same kernel state.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", dir, ErrBusy)
	}
	return f, nil
}

const lockFile = "datapath.lock"

// Apply makes the kernel match the plan. It changes only what differs, so that sessions and
// device states survive, and the same plan twice changes nothing.
func (d *Datapath) Apply(ctx context.Context, p Plan) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	return d.host.ns.do(func() error { return d.apply(ctx, p) })
}

func (d *Datapath) apply(ctx context.Context, p Plan) error {
	if err := d.assignIDs(&p); err != nil {
		return err
	}
	there, err := d.present(&p)
	if err != nil {
		return err
	}
	if err := d.host.apply(there, d.slots(&p)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.ensureKernel(p.MaxSessions); err != nil {
		return err
	}
	if err := d.fill(&p, there); err != nil {
		return err
	}
	d.plan = p
	d.publishNames()
	return d.attachAll(there)
}

// present is the part of the plan whose interfaces are there. A NIC that died must not keep the
// box from starting: its link is out of use until it comes back (see watchLinks).
func (d *Datapath) present(p *Plan) (*Plan, error) {
	absent := map[string]bool{}
	for _, l := range p.Links {
		_, err := d.host.link(l.NIC)
		if errors.Is(err, ErrNoLink) {
			absent[l.Name] = true
			d.log.Warn("no such interface: the link is out of use until it is there", "link", l.Name, "nic", l.NIC)
		} else if err != nil {
			return nil, err
		}
	}
	there := *p
	there.Links = slices.DeleteFunc(slices.Clone(p.Links), func(l Link) bool { return absent[l.Name] })
	there.Devices = slices.DeleteFunc(slices.Clone(p.Devices), func(v chain.Device) bool { return absent[v.In] || absent[v.Out] })
	there.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), func(a Address) bool { return absent[a.Link] })
	return &there, nil
}

func (d *Datapath) ensureKernel(sessions int) error {
	if d.kernel == nil {
		k, err := loadKernel(d.pin, sessions, d.log)
		if err != nil {
			return err
		}
		d.kernel = k
	}
	if have := int(d.kernel.Sessions.MaxEntries()); sessions > 0 && have != sessions {
		d.log.Warn("the session table keeps its size until the next clean start", "sessions", have, "wanted", sessions)
	}
	return nil
}

// slots number the links for their routing tables.
func (d *Datapath) slots(p *Plan) map[string]int {
	slots := make(map[string]int, len(p.Links))
	for _, l := range p.Links {
		slots[l.Name] = int(d.st.IDs.Links.Live[l.Name]) - backID - 1
	}
	return slots
}

// Close stops using the kernel's state and leaves it working.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.close()
}

func (d *Datapath) close() error {
	var err error
	if d.links != nil {
		d.links.Close()
		d.links = nil
	}
	if d.kernel != nil {
		err = d.kernel.close()
		d.kernel = nil
	}
	if d.host != nil {
		d.host.close()
		d.host = nil
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// Teardown removes everything that Open and Apply made, restores what they changed, and closes.
// It needs no plan: it also cleans up after a process that was killed.
func (d *Datapath) Teardown() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.host.ns.do(func() error { return errors.Join(unpinAll(d.pin), d.host.teardown()) })
	if err != nil {
		return errors.Join(err, d.close()) // the state stays for another try
	}
	// The lock goes before the directory, the directory only when nothing else is in it.
	return errors.Join(os.Remove(d.lock.Name()), d.st.remove(), d.close())
}

// FrontLink is the interface that inner connections are dialled on.
func (d *Datapath) FrontLink() string { return frontLink }

// BackLink is the interface that inner connections are accepted on.
func (d *Datapath) BackLink() string { return backLink }

// RegisterBackListener makes a listener bound to BackLink accept any address and port there.
// IPv4 and IPv6 need a listener each.
func (d *Datapath) RegisterBackListener(l syscall.Conn) error {
	k, err := d.loaded()
	if err != nil {
		return err
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return fmt.Errorf("back listener: %w", err)
	}
	var put error
	if err := raw.Control(func(fd uintptr) { put = k.registerListener(int(fd)) }); err != nil {
		return fmt.Errorf("back listener: %w", err)
	}
	return put
}

func (k *kernel) registerListener(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("back listener's family: %w", err)
	}
	index := uint32(0)
	if domain == unix.AF_INET6 {
		index = 1
	}
	if err := k.BackListeners.Put(index, uint64(fd)); err != nil {
		return fmt.Errorf("register back listener: %w", err)
	}
	return nil
}

// loaded is the kernel side, once there is one.
func (d *Datapath) loaded() (*kernel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return nil, ErrNotSet
	}
	return d.kernel, nil
}

// Names is the present mapping of ids to names.
func (d *Datapath) Names() Names { return *d.names.Load() }

func (d *Datapath) publishNames() {
	ids := &d.st.IDs
	d.names.Store(&Names{ids.Links.table(), ids.Devices.table(), ids.Pools.table(), ids.Chains.table()})
}
