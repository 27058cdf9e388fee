package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sslo/test/lab/origin"
)

// ClientOptions of an HTTPS client; the zero value asks the virtual server by IPv4 as shop.test.
type ClientOptions struct {
	IPv6      bool
	Address   netip.AddrPort // to connect to; the virtual server if not valid
	Source    netip.AddrPort // to connect from; port 0: any
	SNI       string         // ShopName if empty, none if "-"
	TLS       *tls.Config    // taken as a start, if given
	KeepAlive bool           // reuse connections; otherwise each request makes one
	Progress  *Progress      // told by Download and Upload, if given
}

// Progress of a transfer under way.
type Progress struct {
	client atomic.Pointer[netip.AddrPort]
}

// Client is the client's address and port, by which the sessions are found; not valid before the handshake.
func (p *Progress) Client() netip.AddrPort {
	if a := p.client.Load(); a != nil {
		return *a
	}
	return netip.AddrPort{}
}

// Target is the address that the options mean.
func (o ClientOptions) Target() netip.AddrPort {
	switch {
	case o.Address.IsValid():
		return o.Address
	case o.IPv6:
		return netip.AddrPortFrom(VIP6, TLSPort)
	}
	return netip.AddrPortFrom(VIP4, TLSPort)
}

// TLSConfig trusts the lab's CA.
func (l *Lab) TLSConfig(o ClientOptions) *tls.Config {
	cfg := &tls.Config{}
	if o.TLS != nil {
		cfg = o.TLS.Clone()
	}
	if cfg.RootCAs == nil {
		cfg.RootCAs = l.CA.Pool()
	}
	switch o.SNI {
	case "":
		cfg.ServerName = ShopName
	case "-": // crypto/tls sends no SNI for an address, and verifies the address
		cfg.ServerName = o.Target().Addr().String()
	default:
		cfg.ServerName = o.SNI
	}
	return cfg
}

// DialTCP connects from a host to what the options mean.
func (l *Lab) DialTCP(ctx context.Context, from *Host, o ClientOptions) (*net.TCPConn, error) {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if o.Source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(o.Source)
		d.Control = reuseAddress
	}
	c, err := from.Dial(ctx, d, "tcp", o.Target().String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// reuseAddress lets a port be used again at once, while its last connection is in TIME-WAIT.
func reuseAddress(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	if cerr != nil {
		return cerr
	}
	return err
}

// DialTLS connects and does the handshake.
func (l *Lab) DialTLS(ctx context.Context, from *Host, o ClientOptions) (*tls.Conn, error) {
	c, err := l.DialTCP(ctx, from, o)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, l.TLSConfig(o))
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// HTTPClient is a client on a host whose requests all go to what the options mean, whatever the URL's host is.
func (l *Lab) HTTPClient(from *Host, o ClientOptions) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialTLSContext:    func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialTLS(ctx, from, o) },
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialTCP(ctx, from, o) },
		DisableKeepAlives: !o.KeepAlive, DisableCompression: true,
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}}
}

// URL of a path at the virtual server.
func URL(path string) string { return "https://" + ShopName + path }

// Get returns the body of a path at the virtual server.
func (l *Lab) Get(ctx context.Context, from *Host, path string, o ClientOptions) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, URL(path), nil)
	if err != nil {
		return "", err
	}
	resp, err := l.HTTPClient(from, o).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, b)
	}
	return string(b), err
}

// Transfer is the result of a download or an upload.
type Transfer struct {
	Bytes   int64
	Right   bool // the SHA-256 is that of the right stream, complete
	Took    time.Duration
	Stall   time.Duration // longest time without a byte, seen by the reading side
	StallAt time.Time     // when it began
	Gaps    []origin.Gap  // shorter ones too
	Client  netip.AddrPort
}

// Stood is the longest time without a byte between two times; what a gap has outside does not count.
func (tr *Transfer) Stood(from, to time.Time) (longest time.Duration) {
	for _, g := range tr.Gaps {
		if g.At.Before(to) {
			longest = max(longest, g.For-max(from.Sub(g.At), 0))
		}
	}
	return longest
}

// Download reads n bytes of the origin's stream, sent at rate bytes a second (0: as fast as it can).
// The sender paces, so that full buffers do not hide a stall from the reader.
func (l *Lab) Download(ctx context.Context, from *Host, n, rate int64, o ClientOptions) (Transfer, error) {
	start := time.Now()
	client, tr := l.watched(from, o)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, URL(fmt.Sprintf("/bytes/%d?rate=%d", n, rate)), nil)
	if err != nil {
		return *tr, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return *tr, err
	}
	defer resp.Body.Close()
	m := origin.NewMeter()
	_, err = io.CopyBuffer(struct{ io.Writer }{m}, resp.Body, make([]byte, 64<<10))
	tr.Bytes, tr.Took, tr.Stall, tr.StallAt, tr.Gaps = m.Bytes, time.Since(start), m.Stall, m.StallAt, m.Gaps
	tr.Right = err == nil && m.Bytes == n && m.Sum() == origin.Sum(n)
	return *tr, err
}

// Upload sends n bytes at rate; the origin hashes and times them.
func (l *Lab) Upload(ctx context.Context, from *Host, n, rate int64, o ClientOptions) (Transfer, error) {
	start := time.Now()
	client, tr := l.watched(from, o)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, URL("/upload"), origin.Paced(origin.Stream(n), rate))
	if err != nil {
		return *tr, err
	}
	req.ContentLength = n
	resp, err := client.Do(req)
	if err != nil {
		return *tr, err
	}
	defer resp.Body.Close()
	var r origin.Report
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return *tr, fmt.Errorf("upload: %s: %w", resp.Status, err)
	}
	tr.Bytes, tr.Took = r.Bytes, time.Since(start)
	tr.Stall, tr.StallAt = time.Duration(r.StallMS*float64(time.Millisecond)), time.UnixMicro(r.StallAt)
	tr.Gaps = r.Gaps
	tr.Right = r.Bytes == n && r.SHA256 == origin.Sum(n)
	return *tr, nil
}

// watched is an HTTP client that notes the client's address and port, by which a session is found.
func (l *Lab) watched(from *Host, o ClientOptions) (*http.Client, *Transfer) {
	tr := &Transfer{}
	c := l.HTTPClient(from, o)
	c.Transport.(*http.Transport).DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := l.DialTLS(ctx, from, o)
		if err == nil {
			tr.Client = conn.LocalAddr().(*net.TCPAddr).AddrPort()
			if o.Progress != nil {
				o.Progress.client.Store(&tr.Client)
			}
		}
		return conn, err
	}
	return c, tr
}
