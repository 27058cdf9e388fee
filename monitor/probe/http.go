package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"sslo/monitor"
)

// maxBody is how much of an answer a body match looks at.
const maxBody = 1 << 20

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct{ From, To int }

// HTTPSpec: a request, by the NIC if one is named, and what its answer must be.
type HTTPSpec struct {
	Address netip.AddrPort
	NIC     string
	TLS     *TLSSpec // nil: plaintext
	Request HTTPRequest
}

// HTTPRequest is a request and the answer that is good.
type HTTPRequest struct {
	Method, Path, Host string
	Headers            []string // "Name: value"
	Status             []StatusRange
	Body               string // regular expression that must be found; "": any body
}

// TLSSpec is how TLS is spoken with what is probed.
type TLSSpec struct {
	Verify     bool
	ServerName string
	CA         string // PEM; "": the system's
	MinVersion uint16
	Other      *OtherTLS // nil: TLS as crypto/tls speaks it
}

// OtherTLS is a protocol that is not this package's. Two with the same key are the same.
type OtherTLS struct {
	Key  string
	Open func() Handshaker
}

// Handshaker makes handshakes. The connection ends when the time is up.
type Handshaker interface {
	Handshake(conn net.Conn, name string) (net.Conn, error)
	// Again tells that the same is to be tried on another connection.
	Again(err error) bool
}

// tries of a probe whose handshaker finds out what is spoken.
const tries = 3

// HTTP probes by a request on a new connection.
type HTTP struct {
	spec HTTPSpec
	exchange
}

// Open is part of Spec.
func (s HTTPSpec) Open() (Prober, error) {
	e, err := newExchange(s.Request, s.TLS, s.Address)
	if err != nil {
		return nil, err
	}
	return &HTTP{s, *e}, nil
}

func (s HTTPSpec) String() string {
	return s.Request.Method + " " + scheme(s.TLS) + "://" + s.Address.String() + s.Request.Path + by(s.NIC)
}

func scheme(t *TLSSpec) string {
	if t != nil {
		return "https"
	}
	return "http"
}

// Close is part of Prober.
func (*HTTP) Close() error { return nil }

// Probe is part of Prober.
func (p *HTTP) Probe(ctx context.Context) monitor.Result {
	return timed(ctx, func() (string, error) {
		err := p.once(ctx)
		for n := 1; n < tries && p.other != nil && p.other.Again(err); n++ {
			err = p.once(ctx)
		}
		return "", err
	})
}

func (p *HTTP) once(ctx context.Context) error {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return bindToNIC(c, p.spec.NIC) }}
	conn, err := d.DialContext(ctx, "tcp", p.spec.Address.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	return p.do(ctx, conn)
}

// timed makes a result of what f says: a remark, or why it failed.
func timed(ctx context.Context, f func() (remark string, err error)) monitor.Result {
	r := monitor.Result{Started: time.Now()}
	remark, err := f()
	r.Latency = time.Since(r.Started)
	if r.OK, r.Reason = err == nil, remark; err != nil {
		r.Reason = reason(ctx, err)
	}
	return r
}

// exchange is a request that was made ready.
type exchange struct {
	request HTTPRequest
	header  http.Header
	body    *regexp.Regexp
	tls     *tls.Config
	other   Handshaker // in place of tls
	name    string     // for other
}

func newExchange(r HTTPRequest, t *TLSSpec, to netip.AddrPort) (*exchange, error) {
	e := &exchange{request: r, header: http.Header{"User-Agent": {"sslo-monitor"}, "Connection": {"close"}}}
	if e.request.Host == "" {
		e.request.Host = to.String()
	}
	for _, h := range r.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, fmt.Errorf("header %q is not Name: value", h)
		}
		e.header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	var err error
	if e.body, err = regexp.Compile(r.Body); err != nil {
		return nil, err
	}
	switch {
	case t == nil:
	case t.Other != nil:
		if e.other, e.name = t.Other.Open(), t.ServerName; e.name == "" {
			e.name = to.Addr().String()
		}
	default:
		e.tls, err = t.config(to)
	}
	return e, err
}

func (t *TLSSpec) config(to netip.AddrPort) (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: !t.Verify, MinVersion: t.MinVersion, NextProtos: []string{"http/1.1"}}
	if c.ServerName == "" {
		c.ServerName = to.Addr().String()
	}
	if t.CA == "" {
		return c, nil
	}
	if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
		return nil, errors.New("no certificate in the CA file")
	}
	return c, nil
}

// do sends the request on a connection and looks at the answer.
func (e *exchange) do(ctx context.Context, conn net.Conn) error {
	if e.tls != nil {
		c := tls.Client(conn, e.tls)
		if err := c.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		conn = c
	}
	if e.other != nil {
		c, err := e.other.Handshake(conn, e.name)
		if err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		conn = c
	}
	if err := e.write(conn); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: e.request.Method})
	if err != nil {
		return noAnswer(err)
	}
	defer r.Body.Close()
	return e.judge(r)
}

// write makes the request by hand: a path that devices are to find offensive must go out as it is.
func (e *exchange) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", e.request.Method, e.request.Path, e.request.Host)
	if err := e.header.Write(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String()+"\r\n")
	return err
}

func noAnswer(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("connection closed without an answer")
	}
	return err
}

func (e *exchange) judge(r *http.Response) error {
	fits := func(s StatusRange) bool { return s.From <= r.StatusCode && r.StatusCode <= s.To }
	if !slices.ContainsFunc(e.request.Status, fits) {
		return fmt.Errorf("status %s", r.Status)
	}
	if e.request.Body == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return err
	}
	if !e.body.Match(body) {
		return fmt.Errorf("status %s, but its body does not match %q", r.Status, e.request.Body)
	}
	return nil
}
