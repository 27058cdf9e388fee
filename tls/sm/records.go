package sm

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Records is the record layer of one connection. The handshake uses it alone; after it one goroutine may
// read while others write.
type Records struct {
	conn  net.Conn
	rules Rules
	in    inHalf
	out   outHalf
}

type inHalf struct {
	sync.Mutex
	prot    Protection
	buf     *[]byte // nil while nothing is buffered
	r, w    int     // (*buf)[r:w] was received and not consumed
	hand    []byte  // bytes of handshake messages that are not whole
	data    []byte  // application data that was not read yet
	useless int
	err     error
}

// NewRecords makes the record layer over a transport.
func NewRecords(conn net.Conn, rules Rules) *Records { return &Records{conn: conn, rules: rules} }

// SetRules changes the rules; only the goroutine that runs the handshake may.
func (r *Records) SetRules(change func(*Rules)) { change(&r.rules) }

// SetIn changes the keys for what is received. A handshake message must not span the change.
func (r *Records) SetIn(p Protection) error {
	if len(r.in.hand) != 0 {
		return Failf(AlertUnexpectedMessage, "handshake message spans a change of keys")
	}
	r.in.prot = p
	return nil
}

// ReadHandshake gives the next whole handshake message with its header, however records split or join them.
func (r *Records) ReadHandshake() ([]byte, error) {
	for {
		if msg, err := r.message(); msg != nil || err != nil {
			return msg, err
		}
		typ, plain, err := r.next(nil)
		if err != nil {
			return nil, err
		}
		if typ != RecordHandshake {
			return nil, r.fatal(Failf(AlertUnexpectedMessage, "record of type %d instead of a handshake message", typ))
		}
		r.in.hand = append(r.in.hand, plain...)
		r.in.release()
	}
}

// message takes a whole message from what has come of the handshake.
func (r *Records) message() ([]byte, error) {
	h := r.in.hand
	if len(h) < 4 {
		return nil, nil
	}
	n := 4 + int(h[1])<<16 + int(h[2])<<8 + int(h[3])
	if n > MaxHandshake {
		return nil, r.fatal(Failf(AlertDecodeError, "handshake message of %d bytes", n))
	}
	if len(h) < n {
		return nil, nil
	}
	msg := append([]byte(nil), h[:n]...)
	if r.in.hand = h[n:]; len(r.in.hand) == 0 {
		r.in.hand = nil
	}
	return msg, nil
}

// ReadChangeCipherSpec takes a change_cipher_spec, which nothing may precede.
func (r *Records) ReadChangeCipherSpec() error {
	if len(r.in.hand) != 0 {
		return r.fatal(Failf(AlertUnexpectedMessage, "handshake message where change_cipher_spec belongs"))
	}
	typ, plain, err := r.next(nil)
	if err != nil {
		return err
	}
	if typ != RecordChangeCipherSpec || len(plain) != 1 || plain[0] != 1 {
		return r.fatal(Failf(AlertUnexpectedMessage, "record of type %d instead of change_cipher_spec", typ))
	}
	return nil
}

// next gives the next record with content. Alerts and what means nothing end here.
func (r *Records) next(dst []byte) (RecordType, []byte, error) {
	if r.in.err != nil {
		return 0, nil, r.in.err
	}
	for {
		typ, plain, err := r.record(dst)
		if err == nil {
			var useful bool
			if useful, err = r.useful(typ, plain); useful {
				if typ == RecordApplicationData {
					r.in.useless = 0 // only data is progress, once the handshake is done
				}
				return typ, plain, nil
			}
		}
		if err != nil {
			return 0, nil, r.fatal(err)
		}
		if r.in.useless++; r.in.useless > maxUseless {
			return 0, nil, r.fatal(Fail(AlertUnexpectedMessage, ErrUseless))
		}
	}
}

func (r *Records) useful(typ RecordType, plain []byte) (bool, error) {
	if r.rules.TLS13 && len(r.in.hand) > 0 && typ != RecordHandshake && typ != RecordAlert {
		return false, Failf(AlertUnexpectedMessage, "record of type %d inside a handshake message", typ)
	}
	switch typ {
	case RecordAlert:
		return false, r.alert(plain)
	case RecordChangeCipherSpec:
		return !r.rules.DropCCS, nil
	case RecordHandshake:
		if len(plain) == 0 && r.rules.TLS13 {
			return false, Failf(AlertUnexpectedMessage, "empty handshake record")
		}
	case RecordApplicationData:
		if r.rules.ForbidEarly {
			return false, Failf(AlertUnexpectedMessage, "application data during the handshake")
		}
	default:
		return false, Failf(AlertUnexpectedMessage, "record of unknown type %d", typ)
	}
	return len(plain) > 0, nil
}

func (r *Records) alert(b []byte) error {
	if len(b) != 2 {
		return Failf(AlertDecodeError, "alert of %d bytes", len(b))
	}
	level, a := b[0], Alert(b[1])
	switch {
	case a == AlertCloseNotify:
		return io.EOF
	case level == 1 && (!r.rules.TLS13 || a == AlertUserCanceled):
		return nil
	case level == 1 || level == 2:
		return &PeerAlert{Alert: a}
	}
	return Failf(AlertIllegalParameter, "alert of level %d", level)
}

// fatal makes an error stay, unless the transport says that it passes.
func (r *Records) fatal(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Temporary() { //nolint:staticcheck // the relay's "not yet"
		return err
	}
	r.in.err = err
	return err
}

// record reads one record.
func (r *Records) record(dst []byte) (RecordType, []byte, error) {
	if err := r.fill(HeaderSize); err != nil {
		return 0, nil, err
	}
	h := (*r.in.buf)[r.in.r:]
	typ, version, n := RecordType(h[0]), uint16(h[1])<<8|uint16(h[2]), int(h[3])<<8|int(h[4])
	if err := r.acceptable(typ, version, n); err != nil {
		return 0, nil, err
	}
	if err := r.fill(HeaderSize + n); err != nil {
		return 0, nil, err
	}
	body := (*r.in.buf)[r.in.r+HeaderSize : r.in.r+HeaderSize+n]
	r.in.r += HeaderSize + n
	return r.open(dst, typ, version, body)
}

func (r *Records) acceptable(typ RecordType, version uint16, n int) error {
	switch {
	case typ < RecordChangeCipherSpec || typ > RecordApplicationData && typ != RecordSite2Site:
		return Fail(AlertUnexpectedMessage, ErrNotTLS)
	case version>>8 == 0 || version>>8 > 3:
		return Fail(AlertProtocolVersion, ErrNotTLS)
	case r.rules.Expect != 0 && version != r.rules.Expect:
		return Failf(AlertProtocolVersion, "record of version %#04x", version)
	case n > MaxPlain+MaxExpansion || r.in.prot == nil && n > MaxPlain:
		return Fail(AlertRecordOverflow, ErrOversized)
	}
	return nil
}

func (r *Records) open(dst []byte, typ RecordType, version uint16, body []byte) (RecordType, []byte, error) {
	switch {
	case r.in.prot == nil && typ != RecordChangeCipherSpec:
		return typ, body, nil
	case typ == RecordAlert && len(body) == 2:
		// GmSSL 3.1 ends so. It proves nothing, and no alert of ours is called for.
		return 0, nil, &PeerAlert{Alert: Alert(body[1]), Clear: true}
	case typ == RecordChangeCipherSpec && (r.rules.DropCCS || r.in.prot == nil):
		if len(body) != 1 || body[0] != 1 {
			return 0, nil, Failf(AlertUnexpectedMessage, "malformed change_cipher_spec")
		}
		return typ, body, nil
	}
	typ, plain, err := r.in.prot.Open(dst, typ, version, body)
	if err == nil && len(plain) > MaxPlain {
		err = Fail(AlertRecordOverflow, ErrOversized)
	}
	return typ, plain, err
}
