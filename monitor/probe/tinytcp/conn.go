package tinytcp

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/gopacket/layers"
)

const (
	mss    = 1360 // fits every MTU that a device link can have, and IPv6
	window = 65535

	firstRetry = 40 * time.Millisecond
	lastRetry  = 400 * time.Millisecond
	linger     = 2 * time.Second  // how long a closed connection may take to end
	lifetime   = 30 * time.Second // of any connection, whatever its user forgets
)

type state uint8

const (
	synSent state = iota
	synReceived
	established
	ended
)

// Conn is a connection; it implements net.Conn except for deadlines: Abort ends what blocks.
type Conn struct {
	stack  *Stack
	key    key
	accept func(*Conn)

	mu      sync.Mutex
	changed sync.Cond
	state   state
	err     error

	una, next, top uint32 // first byte that is not acknowledged, to send next, after all that was sent
	out            []byte // from una on
	fin            bool   // after out
	rcv            uint32 // the byte that is awaited
	in             []byte
	eof            bool

	retry *time.Timer
	pause time.Duration
	life  *time.Timer
}

// opening is 1 while our SYN, which takes a number, is not acknowledged.
func (c *Conn) opening() uint32 {
	if c.state == synSent || c.state == synReceived {
		return 1
	}
	return 0
}

// end is the number after all that there is to send.
func (c *Conn) end() uint32 {
	n := c.una + c.opening() + uint32(len(c.out))
	if c.fin {
		n++
	}
	return n
}

// flush sends what was not sent yet, and again later what is not acknowledged.
func (c *Conn) flush() {
	if c.opening() == 1 {
		if c.next == c.una {
			c.emit(&layers.TCP{Seq: c.una, SYN: true, ACK: c.state == synReceived}, nil)
			c.next++
		}
		c.watch()
		return
	}
	for c.next != c.end() {
		from := int(c.next - c.una)
		data := c.out[min(from, len(c.out)):min(from+mss, len(c.out))]
		t := &layers.TCP{Seq: c.next, ACK: true, PSH: len(data) > 0}
		c.next += uint32(len(data))
		if c.fin && c.next == c.end()-1 {
			t.FIN = true
			c.next++
		}
		c.emit(t, data)
	}
	c.watch()
}

func (c *Conn) emit(t *layers.TCP, data []byte) {
	if t.ACK {
		t.Ack = c.rcv
	}
	if t.SYN {
		t.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{mss >> 8, mss & 0xff}}}
	}
	if err := c.stack.sendTCP(c.key, t, data); err != nil {
		c.fail(err)
	}
}

// watch sends again what nobody acknowledges.
func (c *Conn) watch() {
	if c.next-c.top < 1<<31 {
		c.top = c.next
	}
	if c.next == c.una || c.state == ended {
		c.quiet()
		return
	}
	if c.retry != nil {
		return
	}
	c.pause = min(max(2*c.pause, firstRetry), lastRetry)
	c.retry = time.AfterFunc(c.pause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.retry = nil; c.state != ended {
			c.next = c.una
			c.flush()
		}
	})
}

func (c *Conn) quiet() {
	if c.retry != nil {
		c.retry.Stop()
		c.retry = nil
	}
	c.pause = 0
}

// segment takes one from the peer.
func (c *Conn) segment(t *layers.TCP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.RST:
		c.reset(t)
		return
	case c.state == synSent:
		if !t.SYN || !t.ACK || t.Ack != c.next {
			return
		}
		c.rcv = t.Seq + 1
	case t.SYN: // once more: our answer was lost
		if c.next = c.una; c.state == established {
			c.emit(&layers.TCP{Seq: c.next, ACK: true}, nil)
		}
		c.flush()
		return
	}
	c.acknowledged(t)
	c.data(t)
	if c.state != ended {
		c.flush()
		c.finish()
	}
	c.changed.Broadcast()
}

func (c *Conn) reset(t *layers.TCP) {
	switch {
	case c.state == synSent && t.ACK && t.Ack == c.next:
		c.fail(ErrRefused)
	case c.state != synSent && t.Seq-c.rcv < window:
		c.fail(ErrReset)
	}
}

// acknowledged takes the peer's word for what it has; nonsense is ignored.
func (c *Conn) acknowledged(t *layers.TCP) {
	n := t.Ack - c.una
	if !t.ACK || n == 0 || n > c.top-c.una {
		return
	}
	c.quiet()
	if c.opening() == 1 {
		c.state = established
		c.una, n = c.una+1, n-1
		if c.next = c.una; t.SYN {
			c.emit(&layers.TCP{Seq: c.una, ACK: true}, nil)
		}
		if c.accept != nil {
			go c.accept(c)
			c.accept = nil
		}
	}
	taken := min(int(n), len(c.out))
	c.out = c.out[taken:]
	if c.fin && int(n) > taken {
		c.fin = false // it is out of the sequence now; closed says so
	}
	c.una += n
	if c.una-c.next < 1<<31 {
		c.next = c.una
	}
}

func (c *Conn) data(t *layers.TCP) {
	if c.state != established || t.SYN {
		return
	}
	data, seq := t.Payload, t.Seq
	if len(data) == 0 && !t.FIN {
		return
	}
	if old := c.rcv - seq; old < 1<<31 { // a repetition, or overlaps
		data = data[min(int(old), len(data)):]
		seq = c.rcv
		if t.FIN && old > uint32(len(t.Payload)) {
			t.FIN = false
		}
	}
	if seq == c.rcv && !c.eof {
		c.in = append(c.in, data...)
		if c.rcv += uint32(len(data)); t.FIN {
			c.rcv++
			c.eof = true
		}
	}
	c.emit(&layers.TCP{Seq: c.next, ACK: true}, nil)
}

// finish forgets a connection that both sides have closed.
func (c *Conn) finish() {
	if c.err == ErrClosed && c.eof && c.una == c.end() {
		c.over()
	}
}

func (c *Conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.over()
}

func (c *Conn) over() {
	c.state = ended
	c.quiet()
	c.life.Stop()
	c.changed.Broadcast()
	go c.stack.forget(c)
}

// wait returns when the condition holds, or the error that ended the connection.
func (c *Conn) wait(is func() bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !is() {
		if c.err != nil {
			return c.err
		}
		c.changed.Wait()
	}
	return nil
}

// Read is part of net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	err := c.wait(func() bool { return len(c.in) > 0 || c.eof })
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(b, c.in)
	c.in = c.in[n:]
	switch {
	case n > 0 || len(b) == 0:
		return n, nil
	case err != nil:
		return 0, err
	}
	return 0, io.EOF
}

// Write is part of net.Conn. It does not wait for the peer.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.fin {
		return 0, ErrClosed
	}
	c.out = append(c.out, b...)
	c.flush()
	return len(b), nil
}

// Close ends the connection in order, in the background.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	c.err, c.fin = ErrClosed, true
	c.flush()
	c.finish()
	time.AfterFunc(linger, c.Abort)
	return nil
}

// Abort ends the connection at once, with a reset if the peer may still have it.
func (c *Conn) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == ended {
		return
	}
	if c.state != synSent {
		_ = c.stack.sendTCP(c.key, &layers.TCP{Seq: c.next, Ack: c.rcv, RST: true, ACK: true}, nil)
	}
	c.fail(ErrClosed)
}

// LocalAddr is part of net.Conn.
func (c *Conn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.stack.addr, c.key.local))
}

// RemoteAddr is part of net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.key.remote) }

// SetDeadline is part of net.Conn; see Abort.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is part of net.Conn; see Abort.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is part of net.Conn; see Abort.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
