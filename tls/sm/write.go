package sm

import (
	"net"
	"sync"
)

type outHalf struct {
	sync.Mutex
	prot   Protection
	flight []byte  // records that wait for Flush
	buf    *[]byte // what flight began in; nil while nothing waits
	err    error
	closed bool // close_notify was sent
	limit  int  // bytes in a record of data; 0: MaxPlain
}

// SetLimit makes records of data smaller, as the peer's record_size_limit (RFC 8449) asks.
func (r *Records) SetLimit(n int) {
	r.out.Lock()
	r.out.limit = n
	r.out.Unlock()
}

// SetOut changes the keys for what is sent from now on.
func (r *Records) SetOut(p Protection) {
	r.out.Lock()
	r.out.prot = p
	r.out.Unlock()
}

// WriteHandshake adds one handshake message to the flight, in a record of its own.
func (r *Records) WriteHandshake(msg []byte) {
	r.out.Lock()
	defer r.out.Unlock()
	for len(msg) > MaxPlain {
		r.add(RecordHandshake, msg[:MaxPlain])
		msg = msg[MaxPlain:]
	}
	r.add(RecordHandshake, msg)
}

// WriteChangeCipherSpec adds a change_cipher_spec to the flight; it is in clear when clear is set, as TLS
// 1.3's is.
func (r *Records) WriteChangeCipherSpec(clear bool) {
	r.out.Lock()
	defer r.out.Unlock()
	if clear {
		r.begin()
		r.out.flight = append(AppendHeader(r.out.flight, RecordChangeCipherSpec, r.rules.Version, 1), 1)
		return
	}
	r.add(RecordChangeCipherSpec, []byte{1})
}

// Flush sends the flight in one write.
func (r *Records) Flush() error {
	r.out.Lock()
	defer r.out.Unlock()
	return r.flush()
}

// Rekey sends a message and changes the keys behind it, with no record in between.
func (r *Records) Rekey(msg []byte, p Protection) error {
	r.out.Lock()
	defer r.out.Unlock()
	if r.out.closed {
		return ErrClosed
	}
	r.add(RecordHandshake, msg)
	r.out.prot = p
	return r.flush()
}

// add appends a record to the flight.
func (r *Records) add(typ RecordType, plain []byte) {
	r.begin()
	if r.out.prot == nil {
		r.out.flight = append(AppendHeader(r.out.flight, typ, r.rules.Version, len(plain)), plain...)
		return
	}
	r.out.flight = r.out.prot.Seal(r.out.flight, typ, plain)
}

// begin gives the flight a buffer.
func (r *Records) begin() {
	if r.out.buf == nil {
		r.out.buf = single.Get().(*[]byte)
		r.out.flight = (*r.out.buf)[:0]
	}
}

func (r *Records) flush() error {
	if r.out.buf == nil {
		return r.out.err
	}
	err := r.send(r.out.flight)
	single.Put(r.out.buf)
	r.out.buf, r.out.flight = nil, nil
	return err
}

// send writes to the transport. A write that failed leaves the stream torn, so the error stays.
func (r *Records) send(b []byte) error {
	if r.out.err != nil {
		return r.out.err
	}
	if _, err := r.conn.Write(b); err != nil {
		r.out.err = err
	}
	return r.out.err
}

// WriteData sends application data, several records in one write.
func (r *Records) WriteData(b []byte) (int, error) {
	r.out.Lock()
	defer r.out.Unlock()
	if r.out.closed {
		return 0, ErrClosed
	}
	if r.out.err != nil {
		return 0, r.out.err
	}
	done := 0
	for first := true; first || done < len(b); first = false {
		n := min(len(b)-done, burst*MaxPlain)
		if err := r.burst(b[done : done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (r *Records) burst(b []byte) error {
	pool := &bursts
	if len(b) <= MaxPlain {
		pool = &single
	}
	p := pool.Get().(*[]byte)
	defer pool.Put(p)
	buf := (*p)[:0]
	most := MaxPlain
	if r.out.limit > 0 {
		most = r.out.limit
	}
	for first := true; first || len(b) > 0; first = false {
		n := min(len(b), most)
		buf = r.out.prot.Seal(buf, RecordApplicationData, b[:n])
		b = b[n:]
	}
	return r.send(buf)
}

// SendAlert sends an alert behind what waits in the flight. After a fatal one, or close_notify, nothing can
// be sent any more.
func (r *Records) SendAlert(a Alert) error {
	r.out.Lock()
	defer r.out.Unlock()
	if r.out.err != nil {
		return r.out.err
	}
	if r.out.closed {
		return nil
	}
	level := byte(2)
	if a.warning() {
		level = 1
	}
	r.add(RecordAlert, []byte{level, byte(a)})
	err := r.flush()
	switch {
	case a == AlertCloseNotify:
		r.out.closed = true
	case level == 2 && err == nil:
		r.out.err = &net.OpError{Op: "local error", Err: a}
	}
	return err
}
