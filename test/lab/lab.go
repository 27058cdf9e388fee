// Package lab builds topologies of network namespaces as Go code: the box, clients, servers and
// inline devices, each a host of its own, joined by virtual cables that can be pulled. It makes
// devices fail in every way that it knows, writes the configuration for the box and runs the
// daemon in it. It knows the daemon only by its command line.
package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"sslo/test/lab/origin"
	"sslo/test/lab/pki"
)

// Options of a lab that are not its topology.
type Options struct {
	ID        string // names the namespaces sslo-ID-...; random if empty
	Dir       string // for certificates, configuration and logs; made below the state directory if empty
	Program   string // path of the sslo binary: the daemon, and devices as processes; see Detached
	Processes bool   // devices and origins are processes of their own, of Program
	Detached  bool   // Processes, and they outlive this one: for `sslo lab up`
	Logger    *slog.Logger
}

// Host is a client or a server.
type Host struct {
	*Namespace
	NIC          string
	Addr4, Addr6 netip.Addr
}

// Lab is a running topology.
type Lab struct {
	ID       string
	Dir      string // certificates, configuration, logs, sockets
	Topology Topology
	Box      *Namespace
	Clients  []*Host
	Servers  []*Host
	CA       *pki.Authority

	opts    Options
	log     *slog.Logger
	mu      sync.Mutex
	closers []io.Closer // in the order of their start
	devices map[string]*deviceHost
	state   state
}

// New builds a lab. On an error nothing of it is left; otherwise the caller must Close it.
func New(ctx context.Context, t Topology, opts Options) (*Lab, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.ID == "" {
		opts.ID = randomID()
	}
	opts.Processes = opts.Processes || opts.Detached
	l := &Lab{ID: opts.ID, Topology: t.withDefaults(), opts: opts, log: opts.Logger, devices: make(map[string]*deviceHost)}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func randomID() string {
	var b [3]byte
	rand.Read(b[:]) // does not fail
	return hex.EncodeToString(b[:])
}

func (l *Lab) build(ctx context.Context) error {
	Sweep()
	if err := l.openState(); err != nil {
		return err
	}
	steps := []func() error{l.makeCertificates, l.buildBox, l.buildClients, l.buildServers, l.buildDevices, l.startOrigins}
	for _, step := range steps {
		if err := errors.Join(ctx.Err(), step()); err != nil {
			return fmt.Errorf("lab %s: %w", l.ID, err)
		}
	}
	return l.saveState()
}

// host makes a namespace whose name ends in role and records it before it exists.
func (l *Lab) host(role string) (*Namespace, error) {
	name := "sslo-" + l.ID + "-" + role
	l.state.Namespaces = append(l.state.Namespaces, name)
	if err := l.saveState(); err != nil {
		return nil, err
	}
	return newNamespace(name)
}

// Namespace finds a host of the lab by its role: box, client, client2, server1 ..., or a device's name.
func (l *Lab) Namespace(role string) (*Namespace, bool) {
	full := "sslo-" + l.ID + "-" + role
	for _, name := range l.state.Namespaces {
		if name == full {
			return &Namespace{full}, true
		}
	}
	return nil, false
}

// Client is the first client.
func (l *Lab) Client() *Host { return l.Clients[0] }

// Server is the first server.
func (l *Lab) Server() *Host { return l.Servers[0] }

// Path of a file in the lab's directory.
func (l *Lab) Path(name string) string { return filepath.Join(l.Dir, name) }

// PinPath is where the daemon of this lab pins its kernel state.
func (l *Lab) PinPath() string { return "/sys/fs/bpf/sslo-" + l.ID }

// AdminSocket is the daemon's.
func (l *Lab) AdminSocket() string { return l.Path("admin.sock") }

// own closes c together with the lab.
func (l *Lab) own(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, c)
}

// Close stops everything that the lab has started and removes everything that it has made. It
// may be called twice, and from a signal handler while a build is under way.
func (l *Lab) Close() error {
	l.mu.Lock()
	closers := l.closers
	l.closers = nil
	l.mu.Unlock()
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i].Close())
	}
	for _, d := range l.devices {
		errs = append(errs, d.close())
	}
	return errors.Join(append(errs, l.state.remove())...)
}

// Detach forgets the lab without ending it: `lab down` finds it by its state.
func (l *Lab) Detach() error { return l.saveState() }

func (l *Lab) makeCertificates() error {
	ca, err := pki.New("sslo lab CA")
	if err != nil {
		return err
	}
	l.CA = ca
	if err := os.WriteFile(l.Path("ca.pem"), ca.PEM, 0o644); err != nil {
		return err
	}
	for _, leaf := range l.leaves() {
		cert, err := ca.Issue(leaf.kind, leaf.names...)
		if err != nil {
			return err
		}
		if err := cert.Write(l.Dir, leaf.file); err != nil {
			return err
		}
	}
	return nil
}

type leafSpec struct {
	file  string
	kind  pki.KeyType
	names []string
}

// Names of the lab's certificates: files NAME.pem and NAME.key.
const (
	ShopName   = "shop.test"
	OriginName = "origin.test"
)

func (l *Lab) leaves() []leafSpec {
	shop := []string{ShopName, "*." + ShopName, VIP4.String(), VIP6.String()}
	hosts := []string{OriginName, ShopName, "*." + ShopName}
	for i := range l.Topology.Servers {
		v4, v6 := serverAddrs(i + 1)
		hosts = append(hosts, v4.Addr().String(), v6.Addr().String())
	}
	return []leafSpec{{"www", pki.ECDSA, shop}, {"www-rsa", pki.RSA, shop}, {"origin", pki.ECDSA, hosts}}
}

// startOrigins runs the built-in TLS origin on each server, all addresses, port 443.
func (l *Lab) startOrigins() error {
	if l.Topology.NoOrigin {
		return nil
	}
	for i, s := range l.Servers {
		if err := l.StartOrigin(s, fmt.Sprintf("server%d", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// StartOrigin runs the built-in TLS origin on a server.
func (l *Lab) StartOrigin(h *Host, name string) error {
	if l.opts.Processes {
		return l.spawn(h.Namespace, "origin-"+name, "lab", "origin-run", "--name", name, "--dir", l.Dir)
	}
	var closer io.Closer
	err := h.Do(func() (err error) {
		closer, err = ServeOrigin(name, l.Dir)
		return err
	})
	if err != nil {
		return err
	}
	l.own(closer)
	return nil
}

// ServeOrigin runs the built-in origin in this process and the thread's namespace, with the
// certificate from a lab's directory.
func ServeOrigin(name, dir string) (io.Closer, error) {
	cert, err := loadLeaf(dir, "origin")
	if err != nil {
		return nil, err
	}
	listener, err := listen("tcp", fmt.Sprintf(":%d", TLSPort))
	if err != nil {
		return nil, fmt.Errorf("origin %s: %w", name, err)
	}
	return origin.Serve(listener, name, cert), nil
}
