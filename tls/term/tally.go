package term

import (
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"

	"sslo/tls/sm"
)

// Tally counts handshakes by what they agreed on, and failures by their reason. Both are few, whatever peers do.
// The zero value is empty.
type Tally struct {
	mu     sync.Mutex
	made   map[Made]uint64
	failed map[Failed]uint64
}

// Made is a kind of handshake, with how often it was made.
type Made struct {
	Family         Family
	Version, Suite string
	Resumed        bool
	Count          uint64
}

// Failed is a kind of failure, with how often it happened. Family is 0 when nothing was spoken.
type Failed struct {
	Family Family
	Reason string
	Count  uint64
}

// Add counts a handshake.
func (t *Tally) Add(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil {
		t.made = map[Made]uint64{}
	}
	t.made[Made{Family: s.Family, Version: s.Version, Suite: s.Suite, Resumed: s.Resumed}]++
}

// Fail counts a failure.
func (t *Tally) Fail(f Family, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = map[Failed]uint64{}
	}
	t.failed[Failed{Family: f, Reason: ReasonOf(err)}]++
}

// Snapshot is sorted.
func (t *Tally) Snapshot() (made []Made, failed []Failed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for m, n := range t.made {
		m.Count = n
		made = append(made, m)
	}
	for f, n := range t.failed {
		f.Count = n
		failed = append(failed, f)
	}
	slices.SortFunc(made, func(a, b Made) int { return cmp.Compare(a.Version+a.Suite, b.Version+b.Suite) })
	slices.SortFunc(failed, func(a, b Failed) int { return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Reason, b.Reason)) })
	return made, failed
}

// ReasonOf is why a handshake failed, as one of a small number of words: the alert that the peer sent
// ("peer: unknown certificate authority") or got ("handshake failure"), "closed", "timeout", "other".
func ReasonOf(err error) string {
	var peer *sm.PeerAlert
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, ErrTLCP), errors.Is(err, ErrNotSpoken):
		return "protocol not spoken"
	case errors.As(err, &peer):
		return "peer: " + peer.Alert.String()
	case errors.As(err, &op) && op.Op == "remote error":
		return "peer: " + strings.TrimPrefix(op.Err.Error(), "tls: ")
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case closed(err):
		return "closed"
	case isNoTLS(err):
		return "not TLS"
	}
	if a, ok := sm.AlertOf(err); ok {
		return a.String()
	}
	return stdReason(err)
}

func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

func isNoTLS(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) || errors.Is(err, sm.ErrNotTLS)
}

// stdReason finds the alert that crypto/tls has sent, which its errors do not have.
func stdReason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "local error" {
		return strings.TrimPrefix(op.Err.Error(), "tls: ")
	}
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		return sm.AlertBadCertificate.String()
	}
	text := err.Error()
	for _, known := range stdTexts {
		if strings.Contains(text, known.part) {
			return known.alert.String()
		}
	}
	return "other"
}

var stdTexts = []struct {
	part  string
	alert sm.Alert
}{
	{"no cipher suite supported", sm.AlertHandshakeFailure},
	{"no key exchanges supported", sm.AlertHandshakeFailure},
	{"unsupported versions", sm.AlertProtocolVersion},
	{"protocol version not supported", sm.AlertProtocolVersion},
	{"unsupported application protocols", sm.AlertNoApplicationProtocol},
	{"didn't provide a certificate", sm.AlertCertificateRequired},
	{"certificate is revoked", sm.AlertCertificateRevoked},
	{"invalid signature", sm.AlertDecryptError},
	{"invalid fallback", sm.AlertInappropriateFallback},
	{"inappropriate protocol fallback", sm.AlertInappropriateFallback},
	{"Finished", sm.AlertDecryptError},
	{"unexpected", sm.AlertUnexpectedMessage},
	{"illegal", sm.AlertIllegalParameter},
	{"invalid", sm.AlertIllegalParameter},
}
