package app

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"

	"sslo/config"
	"sslo/tls/cert"
	"sslo/tls/term"
)

var families = map[config.Protocol]term.Family{config.ProtocolTLS: term.TLS, config.ProtocolTLCP: term.TLCP, config.ProtocolTLS13SM: term.TLS13SM}

// auto is the order in which servers are asked what they speak.
var auto = []term.Family{term.TLS, term.TLS13SM, term.TLCP}

var clientAuth = map[config.ClientCertificates]tls.ClientAuthType{config.ClientCertNone: tls.NoClientCert,
	config.ClientCertOptional: tls.VerifyClientCertIfGiven, config.ClientCertRequired: tls.RequireAndVerifyClientCert}

func certificates(c *config.Config) map[string]*config.Certificate {
	m := map[string]*config.Certificate{}
	for _, one := range c.Certificates {
		m[one.Name] = one
	}
	return m
}

// serverOptions are how a virtual server speaks with clients.
func serverOptions(c *config.VirtualServer, certs map[string]*config.Certificate) term.ServerOptions {
	t := &c.TLS
	o := term.ServerOptions{ALPN: c.ALPN, MinVersion: uint16(t.MinVersion), MaxVersion: uint16(t.MaxVersion),
		Families: []term.Family{}, ClientAuth: clientAuth[t.ClientCertificates]}
	for _, p := range t.Protocols {
		o.Families = append(o.Families, families[p])
	}
	s := &term.SMServer{Suites: suites(t.SM.Suites), Tolerant: t.SM.Mode == config.SMTolerant}
	for _, name := range c.Certificates {
		if pair := certs[name]; pair.SM.Certificate != nil {
			s.Certificates = append(s.Certificates, pair.SM)
		}
	}
	if len(s.Certificates) > 0 {
		o.SM = s
	}
	if t.Trust != nil {
		o.ClientCAs, s.ClientCAs, o.CRLs = t.Trust.TLS, t.Trust.SM, t.Trust.CRLs
	}
	if t.ClientCertificates != config.ClientCertNone {
		o.Trust = fmt.Sprintf("%s %x", config.Word(t.ClientCertificates), sha256.Sum256([]byte(t.Trust.PEM)))
	}
	return o
}

// clientOptions are how the servers of a pool are spoken with.
func clientOptions(t *config.ServerTLS, certs map[string]*config.Certificate) term.ClientOptions {
	o := term.ClientOptions{SkipVerify: !t.Verify, ServerName: t.ServerName, MinVersion: uint16(t.MinVersion), Families: auto}
	if t.Protocol != config.ServerAuto {
		o.Families = []term.Family{families[config.Protocol(t.Protocol)]}
	}
	s := &term.SMClient{Suites: suites(t.SM.Suites), Tolerant: t.SM.Mode == config.SMTolerant, LongKeyExchange: t.SM.LongKeyExchange,
		SignRawMessages: t.SM.SignRawMessages, OmitEncCertificate: t.SM.OmitEncCertificate}
	if t.Trust != nil {
		o.CA, s.CA, o.CRLs = t.Trust.TLS, t.Trust.SM, t.Trust.CRLs
	}
	for _, name := range t.Certificates {
		if c := certs[name]; c.SM.Certificate == nil {
			o.Certificates = append(o.Certificates, c.TLS)
		} else {
			s.Certificate = &cert.SMPair{Name: name, Certificate: c.SM.Certificate}
		}
	}
	if len(o.Families) > 1 || o.Families[0] != term.TLS {
		o.SM = s
	}
	return o
}

func suites(list []config.SMSuite) (ids []uint16) {
	for _, s := range list {
		ids = append(ids, uint16(s))
	}
	return ids
}
