package relay

import (
	"io"

	"sslo/tls/term"
)

// TLS is a stream whose other end speaks TLS with us.
type TLS struct {
	*Wire
	conn  term.Conn
	write func([]byte) (int, error)
}

// NewTLS makes a stream of a connection whose handshake ran over that wire and is done.
func NewTLS(w *Wire, conn term.Conn) *TLS {
	w.Flush()
	return NewTLSToServer(w, conn)
}

// NewTLSToServer is NewTLS for a handshake whose last flight was ours: it waits for the first data.
func NewTLSToServer(w *Wire, conn term.Conn) *TLS {
	w.Relay()
	return &TLS{w, conn, conn.Write}
}

// Read implements Stream: all whole records that are here, decrypted.
func (t *TLS) Read() (*Buffer, error) {
	for {
		t.await()
		b := t.bufs.get()
		err := t.drain(b)
		if b.N > 0 {
			return b, err
		}
		t.bufs.Release(b)
		if err != nil {
			return nil, err
		}
	}
}

// drain never waits: it ends with the last whole record. Records without data (tickets) yield none.
func (t *TLS) drain(b *Buffer) error {
	for len(b.B)-b.N >= maxPlain && t.whole() {
		n, err := t.conn.Read(b.B[b.N:])
		b.N += n
		switch {
		case err == errNotYet:
			return nil
		case err == io.EOF && t.told:
			return ErrTruncated
		case err != nil:
			return err
		}
	}
	return nil
}

// Write implements Stream: many records, one system call.
func (t *TLS) Write(b []byte) error {
	if len(b) > maxPlain {
		return t.corked(t.write, b)
	}
	_, err := t.write(b)
	return err
}

// CloseWrite implements Stream.
func (t *TLS) CloseWrite(inOrder bool) error {
	if inOrder {
		if err := t.conn.CloseWrite(); err != nil {
			return err
		}
	}
	t.Flush()
	return t.TCPConn.CloseWrite()
}
