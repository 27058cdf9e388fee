package tls13sm

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"fmt"

	smecdh "github.com/emmansun/gmsm/ecdh"

	"sslo/tls/sm"
)

// ephemeral is a private key for one handshake.
type ephemeral struct {
	group CurveID
	sm    *smecdh.PrivateKey
	std   *ecdh.PrivateKey
}

func stdCurve(g CurveID) ecdh.Curve {
	switch g {
	case tls.X25519:
		return ecdh.X25519()
	case tls.CurveP256:
		return ecdh.P256()
	case tls.CurveP384:
		return ecdh.P384()
	}
	return nil
}

func generate(g CurveID) (*ephemeral, error) {
	e := &ephemeral{group: g}
	var err error
	if g == CurveSM2 {
		e.sm, err = smecdh.P256().GenerateKey(rand.Reader)
		return e, err
	}
	curve := stdCurve(g)
	if curve == nil {
		return nil, fmt.Errorf("unknown group %d", g)
	}
	e.std, err = curve.GenerateKey(rand.Reader)
	return e, err
}

func (e *ephemeral) share() keyShare {
	if e.sm != nil {
		return keyShare{e.group, e.sm.PublicKey().Bytes()}
	}
	return keyShare{e.group, e.std.PublicKey().Bytes()}
}

// agree computes the shared secret with what the peer sent.
func (e *ephemeral) agree(peer []byte) ([]byte, error) {
	s, err := e.shared(peer)
	if err != nil {
		return nil, sm.Failf(sm.AlertIllegalParameter, "peer's key share: %w", err)
	}
	return s, nil
}

func (e *ephemeral) shared(peer []byte) ([]byte, error) {
	if e.sm != nil {
		p, err := smecdh.P256().NewPublicKey(peer)
		if err != nil {
			return nil, err
		}
		return e.sm.ECDH(p)
	}
	p, err := stdCurve(e.group).NewPublicKey(peer)
	if err != nil {
		return nil, err
	}
	return e.std.ECDH(p)
}
