package tlcp

import (
	"crypto/rand"
	"errors"

	"github.com/emmansun/gmsm/ecdh"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"sslo/tls/sm"
)

// The key exchange messages of ECDHE: curve type, curve, and a point with its length.
const (
	curveTypeNamed = 3
	curveSM2       = 41
	pointSize      = 65
	paramsSize     = 4 + pointSize
	pmsSize        = 48
)

// errPoint is the reason for parameters that are no point of the curve.
var errPoint = errors.New("ECDHE parameters are no point of curveSM2")

func pointParams(point []byte) []byte {
	return append([]byte{curveTypeNamed, 0, curveSM2, pointSize}, point...)
}

// readPointParams takes the parameters off the front of a message.
func readPointParams(s *cryptobyte.String) ([]byte, error) {
	var p []byte
	if !s.ReadBytes(&p, paramsSize) {
		return nil, malformed()
	}
	if p[0] != curveTypeNamed || p[1] != 0 || p[2] != curveSM2 || p[3] != pointSize {
		return nil, sm.Fail(sm.AlertIllegalParameter, errPoint)
	}
	return p, nil
}

func paramsKey(params []byte) (*ecdh.PublicKey, error) {
	k, err := ecdh.P256().NewPublicKey(params[4:])
	if err != nil {
		return nil, sm.Fail(sm.AlertIllegalParameter, errPoint)
	}
	return k, nil
}

// eccSigned is what the server signs for ECC: its encryption certificate, with its length.
func eccSigned(enc *smx509.Certificate) []byte {
	n := len(enc.Raw)
	return append([]byte{byte(n >> 16), byte(n >> 8), byte(n)}, enc.Raw...)
}

// encryptedMessage is the ClientKeyExchange of ECC.
func encryptedMessage(ciphertext []byte) ([]byte, error) {
	return message(typeClientKeyExchange, func(b *cryptobyte.Builder) {
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(ciphertext) })
	})
}

// readEncrypted gives the ciphertext of the ClientKeyExchange of ECC. Some hardware clients pad it behind
// the ASN.1 SEQUENCE, within the length.
func readEncrypted(msg []byte) ([]byte, error) {
	s := body(msg)
	var c cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&c) || !s.Empty() {
		return nil, malformed()
	}
	rest := c
	var whole cryptobyte.String
	if rest.ReadASN1Element(&whole, asn1.SEQUENCE) {
		return whole, nil
	}
	return c, nil
}

// decryptPMS never fails: what is no pre-master secret is replaced by a random one, and the handshake ends at
// Finished, so that nobody learns from the way it ends what was wrong (RFC 5246, 7.4.7.1). The version in the
// first two bytes is not looked at, as nobody's server but GmSSL's does: there is only one version.
func decryptPMS(key *sm2.PrivateKey, ciphertext []byte) []byte {
	pms := make([]byte, pmsSize)
	rand.Read(pms)
	plain, err := sm2.Decrypt(key, ciphertext)
	if err == nil && len(plain) == pmsSize {
		return plain
	}
	return pms
}

// newPMS makes a pre-master secret with the client's version, encrypted to the server.
func newPMS(enc *smx509.Certificate) (pms, ciphertext []byte, err error) {
	pub, err := sm.PublicKey(enc)
	if err != nil {
		return nil, nil, sm.Fail(sm.AlertUnsupportedCertificate, err)
	}
	pms = make([]byte, pmsSize)
	rand.Read(pms)
	pms[0], pms[1] = VersionTLCP11>>8, VersionTLCP11&0xff
	ciphertext, err = sm2.EncryptASN1(rand.Reader, pub, pms)
	return pms, ciphertext, err
}

// pointMessage is the ClientKeyExchange of ECDHE. The standard's text has a length before the parameters (71
// bytes); most implementations have none (69).
func pointMessage(point []byte, long bool) ([]byte, error) {
	return message(typeClientKeyExchange, func(b *cryptobyte.Builder) {
		if long {
			b.AddUint16(paramsSize)
		}
		b.AddBytes(pointParams(point))
	})
}

// readPoint reads either form.
func readPoint(msg []byte) (*ecdh.PublicKey, error) {
	s := body(msg)
	if len(s) == 2+paramsSize {
		var n uint16
		if s.ReadUint16(&n); n != paramsSize {
			return nil, malformed()
		}
	}
	params, err := readPointParams(&s)
	if err != nil {
		return nil, err
	}
	if !s.Empty() {
		return nil, malformed()
	}
	return paramsKey(params)
}

// agree is the SM2 key exchange of GB/T 32918.3 with the encryption keys as the lasting ones. The server is the
// initiator.
func agree(server bool, own, ephemeral *ecdh.PrivateKey, peer, peerEphemeral *ecdh.PublicKey) ([]byte, error) {
	v, err := own.SM2MQV(ephemeral, peer, peerEphemeral)
	if err != nil {
		return nil, sm.Fail(sm.AlertIllegalParameter, err)
	}
	return v.SM2SharedKey(!server, pmsSize, own.PublicKey(), peer, nil, nil)
}

func encPublicKey(enc *smx509.Certificate) (*ecdh.PublicKey, error) {
	pub, err := sm.PublicKey(enc)
	if err != nil {
		return nil, sm.Fail(sm.AlertUnsupportedCertificate, err)
	}
	k, err := sm2.PublicKeyToECDH(pub)
	if err != nil {
		return nil, sm.Fail(sm.AlertUnsupportedCertificate, err)
	}
	return k, nil
}

func newEphemeral() (*ecdh.PrivateKey, error) { return ecdh.P256().GenerateKey(rand.Reader) }
