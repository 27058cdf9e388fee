package sm

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrEarlyCloseWrite is given to CloseWrite before the handshake is done.
var ErrEarlyCloseWrite = errors.New("CloseWrite before the handshake is complete")

// closeWait bounds the close_notify of Close, as in crypto/tls.
const closeWait = 5 * time.Second

// Conn is the net.Conn over Records. A protocol embeds it, with its handshake.
type Conn struct {
	rec       *Records
	handshake func(context.Context) error
	after     func(msg []byte) error
	mu        sync.Mutex // of the handshake
	err       error
	done      atomic.Bool
	active    atomic.Int32 // writers times two, plus one when closed
}

// NewConn makes a connection. handshake runs once; after is given the handshake messages that come later.
func NewConn(rec *Records, handshake func(context.Context) error, after func(msg []byte) error) *Conn {
	return &Conn{rec: rec, handshake: handshake, after: after}
}

// NetConn is the transport.
func (c *Conn) NetConn() net.Conn { return c.rec.conn }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.rec.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.rec.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.rec.conn.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.rec.conn.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn. A write that timed out can not be repaired.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.rec.conn.SetWriteDeadline(t) }

// Done reports whether the handshake is complete.
func (c *Conn) Done() bool { return c.done.Load() }

// Handshake runs the handshake if it has not run.
func (c *Conn) Handshake() error { return c.HandshakeContext(context.Background()) }

// HandshakeContext runs the handshake. The end of ctx before the handshake's closes the transport.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	if c.done.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.done.Load() {
		return c.err
	}
	c.err = c.guarded(ctx)
	return c.err
}

func (c *Conn) guarded(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.rec.conn.Close() })
	err := c.run(ctx)
	if !stop() && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *Conn) run(ctx context.Context) error {
	c.rec.in.Lock()
	defer c.rec.in.Unlock()
	c.rec.rules.ForbidEarly = true
	if err := c.handshake(ctx); err != nil {
		c.tell(err)
		return err
	}
	c.rec.rules.ForbidEarly = false
	c.done.Store(true)
	return nil
}

// tell sends the alert that an error calls for.
func (c *Conn) tell(err error) {
	if a, ok := AlertOf(err); ok {
		_ = c.rec.SendAlert(a)
	}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	c.rec.in.Lock()
	defer c.rec.in.Unlock()
	n, err := c.rec.read(b, c.after)
	if err != nil {
		c.tell(err)
	}
	return n, err
}

// read gives application data, decrypted straight into b when a whole record fits there.
func (r *Records) read(b []byte, after func([]byte) error) (int, error) {
	for len(r.in.data) == 0 {
		typ, plain, err := r.next(b[:0:len(b)])
		switch {
		case err != nil:
			return 0, clearEnd(err)
		case typ == RecordApplicationData && len(b) >= len(plain) && &b[0] == &plain[0]:
			r.in.release()
			return len(plain), nil
		case typ == RecordApplicationData:
			r.in.data = plain
		case typ == RecordHandshake:
			err = r.late(plain, after)
		default:
			err = Failf(AlertUnexpectedMessage, "record of type %d after the handshake", typ)
		}
		if err != nil {
			return 0, r.fatal(err)
		}
	}
	n := copy(b, r.in.data)
	r.in.data = r.in.data[n:]
	r.in.release()
	return n, nil
}

// late hands on the handshake messages that come after the handshake.
func (r *Records) late(plain []byte, after func([]byte) error) error {
	r.in.hand = append(r.in.hand, plain...)
	r.in.release()
	for {
		msg, err := r.message()
		if msg == nil || err != nil {
			return err
		}
		if r.in.useless++; r.in.useless > maxUseless {
			return Fail(AlertUnexpectedMessage, ErrUseless)
		}
		if err := after(msg); err != nil {
			return err
		}
	}
}

// clearEnd makes an alert that anybody can have sent what it is: an end that is not known to be one.
func clearEnd(err error) error {
	var p *PeerAlert
	if errors.As(err, &p) && p.Clear {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if !c.enter() {
		return 0, net.ErrClosed
	}
	defer c.active.Add(-2)
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	return c.rec.WriteData(b)
}

// enter counts a writer, unless the connection is closed.
func (c *Conn) enter() bool {
	for {
		x := c.active.Load()
		if x&1 != 0 {
			return false
		}
		if c.active.CompareAndSwap(x, x+2) {
			return true
		}
	}
}

// CloseWrite sends close_notify. The transport is left as it is.
func (c *Conn) CloseWrite() error {
	if !c.done.Load() {
		return ErrEarlyCloseWrite
	}
	return c.rec.SendAlert(AlertCloseNotify)
}

// Close sends close_notify, unless a write is under way, and closes the transport.
func (c *Conn) Close() error {
	for {
		x := c.active.Load()
		if x&1 != 0 {
			return net.ErrClosed
		}
		if !c.active.CompareAndSwap(x, x|1) {
			continue
		}
		if x != 0 {
			return c.rec.conn.Close()
		}
		break
	}
	var told error
	if c.done.Load() {
		_ = c.rec.conn.SetWriteDeadline(time.Now().Add(closeWait))
		told = c.rec.SendAlert(AlertCloseNotify)
		_ = c.rec.conn.SetWriteDeadline(time.Now())
	}
	if err := c.rec.conn.Close(); err != nil {
		return err
	}
	return told
}
