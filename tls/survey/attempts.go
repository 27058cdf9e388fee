package survey

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
	"sslo/tls/sm"
	"sslo/tls/term"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

func (t *Try) fail(ctx context.Context, err error) {
	t.Reason = term.ReasonOf(err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Reason, err = "timeout", errors.New("no answer in time")
	}
	t.Error = err.Error()
}

// std is crypto/tls; version 0: any that it knows.
func (o *Options) std(with string, version uint16) attempt {
	return attempt{"tls", with, func(ctx context.Context, nc net.Conn, t *Try) error {
		cfg := &tls.Config{ServerName: o.ServerName, InsecureSkipVerify: true, NextProtos: o.ALPN, MinVersion: tls.VersionTLS10}
		if version != 0 {
			cfg.MinVersion, cfg.MaxVersion = version, version
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if t.Asked = true; o.Certificate != nil {
				return o.Certificate, nil
			}
			return &tls.Certificate{}, nil
		}
		c := tls.Client(nc, cfg)
		if err := c.HandshakeContext(ctx); err != nil {
			return err
		}
		s := c.ConnectionState()
		t.Version, t.Suite, t.ALPN = tls.VersionName(s.Version), tls.CipherSuiteName(s.CipherSuite), s.NegotiatedProtocol
		if s.CurveID != 0 {
			t.Group = s.CurveID.String()
		}
		for _, x := range s.PeerCertificates {
			t.Chain = append(t.Chain, stdCertificate(x))
		}
		t.judge(o.verifyStd(s.PeerCertificates))
		t.took()
		return confirm(c, s.Version == tls.VersionTLS13)
	}}
}

// tls13 is strict RFC 8998 with some suites; nil: all.
func (o *Options) tls13(suites []uint16) attempt {
	a := attempt{family: "tls13-sm"}
	if suites != nil {
		a.with = tls13sm.CipherSuiteName(suites[0])
	}
	a.make = func(ctx context.Context, nc net.Conn, t *Try) error { return o.speak13(ctx, nc, t, suites, false) }
	return a
}

// tolerant is RFC 8998 as some stacks speak it, with other groups and certificates.
func (o *Options) tolerant() attempt {
	return attempt{"tls13-sm", "other groups and certificates", func(ctx context.Context, nc net.Conn, t *Try) error {
		return o.speak13(ctx, nc, t, nil, true)
	}}
}

func (o *Options) speak13(ctx context.Context, nc net.Conn, t *Try, suites []uint16, tolerant bool) error {
	cfg := &tls13sm.Config{ServerName: o.ServerName, InsecureSkipVerify: true, NextProtos: o.ALPN, CipherSuites: suites, Tolerant: tolerant}
	cfg.GetClientCertificate = func(*tls13sm.CertificateRequestInfo) (*tls13sm.Certificate, error) {
		if t.Asked = true; o.SMPair != nil {
			c := o.SMPair.TLS13()
			return &c, nil
		}
		return &tls13sm.Certificate{}, nil
	}
	c := tls13sm.Client(nc, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	s := c.ConnectionState()
	t.Version, t.Suite, t.ALPN, t.Group = "TLS 1.3", tls13sm.CipherSuiteName(s.CipherSuite), s.NegotiatedProtocol, groupName(s.CurveID)
	t.chain(s.PeerCertificates, -1)
	t.judge(o.verifySM(s.PeerCertificates[0], nil, s.PeerCertificates[1:]))
	t.took()
	return confirm(c, true)
}

func groupName(id tls.CurveID) string {
	if id == tls13sm.CurveSM2 {
		return "curveSM2"
	}
	return id.String()
}

// tlcp is GB/T 38636 with some suites; nil: those that the client can make without a certificate, if it has none.
func (o *Options) tlcp(suites []uint16) attempt {
	a := attempt{family: "tlcp"}
	if suites != nil {
		a.with = tlcp.CipherSuiteName(suites[0])
	}
	a.make = func(ctx context.Context, nc net.Conn, t *Try) error {
		if suites == nil && o.SMPair == nil {
			suites = []uint16{tlcp.ECC_SM4_GCM_SM3, tlcp.ECC_SM4_CBC_SM3}
		}
		cfg := &tlcp.Config{ServerName: o.ServerName, InsecureSkipVerify: true, NextProtos: o.ALPN, CipherSuites: suites}
		cfg.GetClientCertificate = func(*tlcp.CertificateRequestInfo) (*tlcp.Certificate, error) {
			if t.Asked = true; o.SMPair != nil {
				return o.SMPair.Certificate, nil
			}
			return nil, nil
		}
		c := tlcp.Client(nc, cfg)
		if err := c.HandshakeContext(ctx); err != nil {
			return err
		}
		s := c.ConnectionState()
		t.Version, t.Suite, t.ALPN = "TLCP 1.1", tlcp.CipherSuiteName(s.CipherSuite), s.NegotiatedProtocol
		sign, enc, others := tlcp.SplitChain(s.PeerCertificates)
		t.chain(s.PeerCertificates, slices.Index(s.PeerCertificates, enc))
		t.judge(o.verifySM(sign, enc, others))
		return nil
	}
	return a
}

// confirm reads once after a handshake of TLS 1.3: a server that refuses the client's certificate says so
// only then. Silence is good.
func confirm(c net.Conn, late bool) error {
	if !late {
		return nil
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	var ne net.Error
	if err == nil || errors.As(err, &ne) && ne.Timeout() {
		return nil
	}
	if reason := term.ReasonOf(err); reason == "closed" {
		return nil
	}
	return err
}

func (t *Try) judge(err error) {
	if t.Verified = err == nil; err != nil {
		t.VerifyError = err.Error()
	}
}

func (o *Options) verifyStd(chain []*x509.Certificate) error {
	opts := x509.VerifyOptions{Roots: o.Roots, DNSName: o.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(opts)
	return err
}

// verifySM verifies the certificates of a pair; enc may be nil.
func (o *Options) verifySM(sign, enc *smx509.Certificate, others []*smx509.Certificate) error {
	v := sm.NewVerifier(o.SMRoots, smx509.ExtKeyUsageServerAuth, nil)
	if _, err := v.Verify(sign, others, time.Now()); err != nil {
		return err
	}
	if enc != nil {
		if _, err := v.Verify(enc, others, time.Now()); err != nil {
			return fmt.Errorf("encryption certificate: %w", err)
		}
	}
	return sign.VerifyHostname(o.ServerName)
}

// chain describes certificates; enc is the place of that which encrypts, -1: there is none.
func (t *Try) chain(list []*smx509.Certificate, enc int) {
	for i, c := range list {
		d := describe(c.Raw, c.Subject.String(), c.Issuer.String(), cert.KeyName(c.PublicKey), c.DNSNames, c.NotBefore, c.NotAfter)
		for _, ip := range c.IPAddresses {
			d.Names = append(d.Names, ip.String())
		}
		switch {
		case i == enc:
			d.Usage = "encrypts"
		case i == 0:
			d.Usage = "signs"
		case c.IsCA:
			d.Usage = "CA"
		}
		t.Chain = append(t.Chain, d)
	}
}

func stdCertificate(c *x509.Certificate) Certificate {
	d := describe(c.Raw, c.Subject.String(), c.Issuer.String(), cert.KeyName(c.PublicKey), c.DNSNames, c.NotBefore, c.NotAfter)
	for _, ip := range c.IPAddresses {
		d.Names = append(d.Names, ip.String())
	}
	if c.IsCA {
		d.Usage = "CA"
	}
	return d
}

func describe(raw []byte, subject, issuer, key string, names []string, from, until time.Time) Certificate {
	sum := sha256.Sum256(raw)
	return Certificate{Subject: subject, Issuer: issuer, Key: key, Names: slices.Clone(names), NotBefore: from, NotAfter: until,
		SHA256: hex.EncodeToString(sum[:])}
}
