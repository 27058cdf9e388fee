package app

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"

	"sslo/config"
	"sslo/monitor/probe"
	"sslo/tls/term"
)

// probeTLS is how a monitor speaks with a server.
func probeTLS(t *config.ServerTLS, certs map[string]*config.Certificate) *probe.TLSSpec {
	s := &probe.TLSSpec{Verify: t.Verify, ServerName: t.ServerName, MinVersion: uint16(t.MinVersion)}
	if t.Trust != nil {
		s.CA = t.Trust.PEM
	}
	if t.Protocol == protocolTLS && t.CRL == "" && len(t.Certificates) == 0 {
		return s
	}
	s.Other = &probe.OtherTLS{Key: tlsKey(t, certs), Open: func() probe.Handshaker {
		o := clientOptions(t, certs)
		o.NoResume = true // a probe is to show that the whole of it works
		return prober{term.NewClient(o)}
	}}
	return s
}

// tlsKey tells apart what of a server's TLS is not in a TLSSpec.
func tlsKey(t *config.ServerTLS, certs map[string]*config.Certificate) string {
	h := sha256.New()
	fmt.Fprintln(h, t.Protocol, t.SM, t.Certificates)
	if t.Trust != nil {
		fmt.Fprint(h, t.Trust.CRL)
	}
	for _, name := range t.Certificates {
		for _, der := range shown(certs[name]) {
			h.Write(der)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// prober is a client that asks by HTTP/1.1.
type prober struct{ *term.Client }

// Handshake implements probe.Handshaker.
func (p prober) Handshake(conn net.Conn, name string) (net.Conn, error) {
	return p.Client.Handshake(conn, name, "http/1.1")
}

// Again implements probe.Handshaker.
func (p prober) Again(err error) bool { return errors.Is(err, term.ErrOtherFamily) }
