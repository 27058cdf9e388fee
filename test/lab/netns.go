package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const netnsDir = "/run/netns"

// Namespace is a network namespace with a name that `ip netns` shows too.
type Namespace struct {
	Name string // full name, with the lab's prefix
}

func (n *Namespace) path() string { return filepath.Join(netnsDir, n.Name) }

// newNamespace makes a named namespace with its loopback up.
func newNamespace(name string) (*Namespace, error) {
	n := &Namespace{name}
	err := onThread(func() error {
		h, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
		return h.Close()
	})
	if err != nil {
		return nil, err
	}
	return n, n.netlink(func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.LinkSetUp(lo)
	})
}

// remove unmounts the namespace's name; the kernel frees it with its last user.
func (n *Namespace) remove() error {
	err := netns.DeleteNamed(n.Name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil { // left over half made: a plain file without a mount
		return os.Remove(n.path())
	}
	return nil
}

// onThread runs fn on a thread that is thrown away if it can not be put back as it was.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = fn()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Do runs fn inside the namespace. Sockets that fn opens stay there; goroutines that it starts do not.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		h, err := netns.GetFromPath(n.path())
		if err != nil {
			return fmt.Errorf("namespace %s: %w", n.Name, err)
		}
		defer h.Close()
		if err := netns.Set(h); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.Name, err)
		}
		return fn()
	})
}

// netlink runs fn with a netlink socket of the namespace.
func (n *Namespace) netlink(fn func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPath(n.path())
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n.Name, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n.Name, err)
	}
	defer h.Close()
	return fn(h)
}

// sysctl sets keys below /proc/sys/net, which shows the namespace of the calling thread.
func (n *Namespace) sysctl(values map[string]string) error {
	return n.Do(func() error {
		for key, value := range values {
			path := "/proc/sys/net/" + key
			if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("namespace %s: %w", n.Name, err)
			}
		}
		return nil
	})
}

// cubic is what the lab's hosts send with: some kernels' default, BBR, costs much more CPU, and
// a namespace can not have a default of its own.
func cubic(c syscall.RawConn) {
	c.Control(func(fd uintptr) { unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") }) // best effort
}

// Listen opens a listener inside the namespace.
func (n *Namespace) Listen(network, address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = listen(network, address)
		return err
	})
	return l, err
}

func listen(network, address string) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { cubic(c); return nil }}
	return cfg.Listen(context.Background(), network, address)
}

// DialContext connects from inside the namespace. The address must be a literal one: name
// resolution would leave the thread, and with it the namespace.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.Dial(ctx, &net.Dialer{}, network, address)
}

// Dial connects with a dialer of the caller's.
func (n *Namespace) Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	if t, ok := c.(*net.TCPConn); ok {
		if raw, err := t.SyscallConn(); err == nil {
			cubic(raw)
		}
	}
	return c, err
}

// Cmd is a command that starts inside a namespace.
type Cmd struct {
	*exec.Cmd
	ns *Namespace
}

// Command prepares a command that will run inside the namespace.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{exec.CommandContext(ctx, name, args...), n}
}

// Start starts it; Wait may be called from anywhere.
func (c *Cmd) Start() error { return c.ns.Do(c.Cmd.Start) }

// Run starts it and waits.
func (c *Cmd) Run() error { return c.ns.Do(c.Cmd.Run) }

// Output runs it and returns its standard output.
func (c *Cmd) Output() (out []byte, err error) {
	err = c.ns.Do(func() (err error) {
		out, err = c.Cmd.Output()
		return err
	})
	return out, err
}

// CombinedOutput runs it and returns all that it printed.
func (c *Cmd) CombinedOutput() (out []byte, err error) {
	err = c.ns.Do(func() (err error) {
		out, err = c.Cmd.CombinedOutput()
		return err
	})
	return out, err
}

// Exec runs a command inside the namespace and returns all that it printed; the error says it too.
func (n *Namespace) Exec(ctx context.Context, name string, args ...string) (string, error) {
	out, err := n.Command(ctx, name, args...).CombinedOutput()
	text := string(out)
	if err != nil {
		return text, fmt.Errorf("in %s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err, strings.TrimSpace(text))
	}
	return text, nil
}

// netlinkNS runs fn with a descriptor of the namespace.
func (n *Namespace) netlinkNS(fn func(fd int) error) error {
	ns, err := netns.GetFromPath(n.path())
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n.Name, err)
	}
	defer ns.Close()
	return fn(int(ns))
}
