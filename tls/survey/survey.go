// Package survey owns the question what an endpoint speaks: it tries every family of protocols, each on a
// connection of its own, and says what was agreed on, which certificates were shown and why the rest failed.
package survey

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// Options of a survey. Certificates are looked at after the handshake: one that does not verify ends nothing.
type Options struct {
	Address     string // host:port
	ServerName  string // sent and verified; "": the host
	ALPN        []string
	Roots       *x509.CertPool   // nil: the system's
	SMRoots     *smx509.CertPool // nil: the system's
	Certificate *tls.Certificate // for servers that ask for one
	SMPair      *cert.SMPair
	Timeout     time.Duration // of each try; 0: five seconds
	Suites      bool          // try each SM suite and each version of TLS alone
}

const defaultTimeout = 5 * time.Second

// Try is one try with its outcome.
type Try struct {
	Family      string        `json:"family"`           // tls, tlcp, tls13-sm
	With        string        `json:"with,omitempty"`   // what it was tried with, when not with everything
	OK          bool          `json:"ok"`               // the handshake was made
	Error       string        `json:"error,omitempty"`  // why not
	Reason      string        `json:"reason,omitempty"` // the same in one of a few words
	Version     string        `json:"version,omitempty"`
	Suite       string        `json:"suite,omitempty"`
	Group       string        `json:"group,omitempty"`
	ALPN        string        `json:"alpn,omitempty"`
	Asked       bool          `json:"client_certificate_asked,omitempty"`
	Chain       []Certificate `json:"chain,omitempty"` // as sent
	Verified    bool          `json:"verified"`
	VerifyError string        `json:"verify_error,omitempty"`
	Took        float64       `json:"took_ms"` // TCP and handshake

	start time.Time
}

// Certificate is one of a chain.
type Certificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Key       string    `json:"key"`
	Usage     string    `json:"usage,omitempty"` // of a pair: signs, encrypts; or CA
	Names     []string  `json:"names,omitempty"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	SHA256    string    `json:"sha256"`
}

// attempt is what is tried.
type attempt struct {
	family, with string
	make         func(context.Context, net.Conn, *Try) error
}

// Run tries everything.
func Run(ctx context.Context, o Options) ([]Try, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}
	if o.ServerName == "" {
		o.ServerName = host
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	var tries []Try
	for _, a := range o.attempts() {
		if err := ctx.Err(); err != nil {
			return tries, err
		}
		t, reached := o.try(ctx, a)
		if !reached {
			return append(tries, t), nil // the rest would be the same
		}
		tries = append(tries, t)
		if a.family == "tls13-sm" && a.with == "" && !t.OK && !o.Suites {
			if again, _ := o.try(ctx, o.tolerant()); again.OK {
				tries = append(tries, again)
			}
		}
	}
	return tries, nil
}

func (o *Options) attempts() []attempt {
	if !o.Suites {
		return []attempt{o.std("", 0), o.tls13(nil), o.tlcp(nil)}
	}
	list := []attempt{o.std("TLS 1.3", tls.VersionTLS13), o.std("TLS 1.2", tls.VersionTLS12),
		o.std("TLS 1.1", tls.VersionTLS11), o.std("TLS 1.0", tls.VersionTLS10)}
	for _, s := range []uint16{tls13sm.TLS_SM4_GCM_SM3, tls13sm.TLS_SM4_CCM_SM3} {
		list = append(list, o.tls13([]uint16{s}))
	}
	list = append(list, o.tolerant())
	for _, s := range tlcp.CipherSuites() {
		list = append(list, o.tlcp([]uint16{s}))
	}
	return list
}

// try makes one connection. It is not reached when TCP fails.
func (o *Options) try(ctx context.Context, a attempt) (t Try, reached bool) {
	t = Try{Family: a.family, With: a.with, start: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		t.Error, t.Reason = err.Error(), "not reached"
		return t, false
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	err = a.make(ctx, c, &t)
	t.took()
	if t.OK = err == nil; err != nil {
		t.fail(ctx, err)
	}
	return t, true
}

// took notes the time once.
func (t *Try) took() {
	if t.Took == 0 {
		t.Took = float64(time.Since(t.start).Microseconds()) / 1000
	}
}
