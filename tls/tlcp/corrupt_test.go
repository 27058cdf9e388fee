package tlcp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"sslo/tls/sm"
)

// One wrong byte anywhere in a handshake ends it at both sides, with an alert that fits what was wrong.
func TestCorruptedByte(t *testing.T) {
	for name, x := range map[string]struct {
		id     uint16
		auth   ClientAuthType
		stride int // every how many bytes; the first suite takes all
	}{
		"ECC GCM":   {ECC_SM4_GCM_SM3, RequireAndVerifyClientCert, 1},
		"ECC CBC":   {ECC_SM4_CBC_SM3, NoClientCert, 5},
		"ECDHE GCM": {ECDHE_SM4_GCM_SM3, RequireAndVerifyClientCert, 5},
	} {
		t.Run(name, func(t *testing.T) {
			stride := x.stride
			if testing.Short() {
				stride *= 11
			}
			for _, fromClient := range []bool{true, false} {
				t.Run(fmt.Sprint(fromClient), func(t *testing.T) {
					t.Parallel()
					client, server := configs(t)
					client.CipherSuites, server.ClientAuth = []uint16{x.id}, x.auth
					corruptEach(t, client, server, fromClient, stride)
				})
			}
		})
	}
}

func corruptEach(t *testing.T, client, server *Config, fromClient bool, stride int) {
	sent := corrupt(client, server, fromClient, -1).sent
	regions := regionsOf(sent)
	for at := 0; at < len(sent); at += stride {
		got := corrupt(client, server, fromClient, at)
		// Signatures and ciphertexts differ in length by a byte or two: the region is that of this run.
		if regions = regionsOf(got.sent); at >= len(regions) {
			continue
		}
		got.judge(t, at, regions[at])
	}
}

type corruption struct {
	result
	sent       []byte
	fromClient bool
}

func corrupt(client, server *Config, fromClient bool, at int) corruption {
	c, s := newPipe()
	var wire *tap
	if fromClient {
		wire = &tap{Conn: c, flip: at, xor: 0x41}
		c = wire
	} else {
		wire = &tap{Conn: s, flip: at, xor: 0x41}
		s = wire
	}
	r := result{client: Client(c, client), server: Server(s, server)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.serverErr = r.server.Handshake()
		linger(s)
	}()
	r.clientErr = r.client.Handshake()
	linger(c)
	<-done
	return corruption{r, wire.sent, fromClient}
}

// region is what a byte of a handshake belongs to.
type region struct {
	first  bool // of the first record
	header int  // place in the record's header; 5: not in it
	kind   byte // handshake message in clear, or 0 for what is protected, or 255 for change_cipher_spec
	msg    int  // place in the message
}

func regionsOf(sent []byte) (out []region) {
	protected := false
	for i, rec := range recordsOf(sent) {
		for at := range rec {
			r := region{first: i == 0, header: min(at, 5), msg: at - 5}
			switch {
			case protected:
			case rec[0] == byte(sm.RecordChangeCipherSpec):
				r.kind = 255
			default:
				r.kind = rec[5]
			}
			out = append(out, r)
		}
		protected = protected || rec[0] == byte(sm.RecordChangeCipherSpec)
	}
	return out
}

// after a wrong byte that parses, keys or verify data differ: the record of Finished does not authenticate.
var late = []sm.Alert{sm.AlertBadRecordMAC, sm.AlertDecryptError}

func (r region) alerts() []sm.Alert {
	parse := append([]sm.Alert{sm.AlertDecodeError, sm.AlertUnexpectedMessage, sm.AlertIllegalParameter}, late...)
	switch {
	case r.header == 0 || r.kind == 255 && r.header == 5:
		return []sm.Alert{sm.AlertUnexpectedMessage, sm.AlertDecodeError, sm.AlertBadRecordMAC}
	case r.header < 3:
		return []sm.Alert{sm.AlertProtocolVersion}
	case r.header < 5:
		return append(parse, sm.AlertRecordOverflow, sm.AlertProtocolVersion, sm.AlertBadCertificate, sm.AlertUnsupportedCertificate)
	case r.kind == 0:
		return []sm.Alert{sm.AlertBadRecordMAC}
	case r.msg == 0:
		return []sm.Alert{sm.AlertUnexpectedMessage}
	}
	switch r.kind {
	case typeClientHello, typeServerHello:
		return append(parse, sm.AlertProtocolVersion, sm.AlertHandshakeFailure, sm.AlertUnsupportedExtension)
	case typeCertificate:
		return append(parse, sm.AlertBadCertificate, sm.AlertUnknownCA, sm.AlertUnsupportedCertificate, sm.AlertCertificateExpired, sm.AlertHandshakeFailure)
	case typeCertificateRequest:
		return append(parse, sm.AlertHandshakeFailure)
	}
	return parse
}

// judge lets a run end in silence only where the wrong byte was a length: then one waits for the rest.
func (c corruption) judge(t *testing.T, at int, r region) {
	t.Helper()
	if c.clientErr == nil || c.serverErr == nil {
		if tolerated := r.first && r.header >= 1 && r.header < 3; !tolerated && !c.lastFlight(r) {
			t.Errorf("byte %d %+v: client: %v; server: %v", at, r, c.clientErr, c.serverErr)
		}
		return
	}
	found := false
	for _, err := range []error{c.clientErr, c.serverErr} {
		var f *sm.Failure
		if errors.As(err, &f) {
			if found = true; !slices.Contains(r.alerts(), f.Alert) {
				t.Errorf("byte %d %+v: %v (alert %d), want one of %v", at, r, err, uint8(f.Alert), r.alerts())
			}
		}
	}
	length := r.header == 3 || r.header == 4 || r.msg >= 1 && r.msg <= 3
	if !found && !(length && (errors.Is(c.clientErr, os.ErrDeadlineExceeded) || errors.Is(c.serverErr, os.ErrDeadlineExceeded))) {
		t.Errorf("byte %d %+v ended without an alert: client: %v; server: %v", at, r, c.clientErr, c.serverErr)
	}
}

// lastFlight reports the server's last flight, which the server can not know the fate of.
func (c corruption) lastFlight(r region) bool {
	return !c.fromClient && (r.kind == 0 || r.kind == 255) && c.serverErr == nil && c.clientErr != nil
}
