package sm

import (
	"errors"
	"fmt"
	"strconv"
)

// Alert is the number of an alert, of TLS and of GB/T 38636.
type Alert uint8

// Alerts.
const (
	AlertCloseNotify            Alert = 0
	AlertUnexpectedMessage      Alert = 10
	AlertBadRecordMAC           Alert = 20
	AlertDecryptionFailed       Alert = 21
	AlertRecordOverflow         Alert = 22
	AlertDecompressionFailure   Alert = 30
	AlertHandshakeFailure       Alert = 40
	AlertBadCertificate         Alert = 42
	AlertUnsupportedCertificate Alert = 43
	AlertCertificateRevoked     Alert = 44
	AlertCertificateExpired     Alert = 45
	AlertCertificateUnknown     Alert = 46
	AlertIllegalParameter       Alert = 47
	AlertUnknownCA              Alert = 48
	AlertAccessDenied           Alert = 49
	AlertDecodeError            Alert = 50
	AlertDecryptError           Alert = 51
	AlertProtocolVersion        Alert = 70
	AlertInsufficientSecurity   Alert = 71
	AlertInternalError          Alert = 80
	AlertInappropriateFallback  Alert = 86
	AlertUserCanceled           Alert = 90
	AlertNoRenegotiation        Alert = 100
	AlertMissingExtension       Alert = 109
	AlertUnsupportedExtension   Alert = 110
	AlertUnrecognizedName       Alert = 112
	AlertUnknownPSKIdentity     Alert = 115
	AlertCertificateRequired    Alert = 116
	AlertNoApplicationProtocol  Alert = 120
	AlertUnsupportedSite2Site   Alert = 200
	AlertNoArea                 Alert = 201
	AlertUnsupportedAreaType    Alert = 202
	AlertBadIBCParam            Alert = 203
	AlertUnsupportedIBCParam    Alert = 204
	AlertIdentityNeed           Alert = 205
)

var alertNames = map[Alert]string{
	AlertCloseNotify: "close notify", AlertUnexpectedMessage: "unexpected message", AlertBadRecordMAC: "bad record MAC",
	AlertDecryptionFailed: "decryption failed", AlertRecordOverflow: "record overflow",
	AlertDecompressionFailure: "decompression failure", AlertHandshakeFailure: "handshake failure",
	AlertBadCertificate: "bad certificate", AlertUnsupportedCertificate: "unsupported certificate",
	AlertCertificateRevoked: "revoked certificate", AlertCertificateExpired: "expired certificate",
	AlertCertificateUnknown: "unknown certificate", AlertIllegalParameter: "illegal parameter",
	AlertUnknownCA: "unknown certificate authority", AlertAccessDenied: "access denied", AlertDecodeError: "error decoding message",
	AlertDecryptError: "error decrypting message", AlertProtocolVersion: "protocol version not supported",
	AlertInsufficientSecurity: "insufficient security level", AlertInternalError: "internal error",
	AlertInappropriateFallback: "inappropriate fallback", AlertUserCanceled: "user canceled",
	AlertNoRenegotiation: "no renegotiation", AlertMissingExtension: "missing extension",
	AlertUnsupportedExtension: "unsupported extension", AlertUnrecognizedName: "unrecognized name",
	AlertUnknownPSKIdentity: "unknown PSK identity", AlertCertificateRequired: "certificate required",
	AlertNoApplicationProtocol: "no application protocol", AlertUnsupportedSite2Site: "unsupported site to site",
	AlertNoArea: "no area", AlertUnsupportedAreaType: "unsupported area type", AlertBadIBCParam: "bad IBC parameter",
	AlertUnsupportedIBCParam: "unsupported IBC parameter", AlertIdentityNeed: "identity needed",
}

// String says the alert in words.
func (a Alert) String() string {
	if s, ok := alertNames[a]; ok {
		return s
	}
	return "alert " + strconv.Itoa(int(a))
}

// Error makes an alert a target for errors.Is.
func (a Alert) Error() string { return "tls: " + a.String() }

// warning reports whether the alert does not end the connection when we send it.
func (a Alert) warning() bool {
	return a == AlertCloseNotify || a == AlertNoRenegotiation || a == AlertUserCanceled
}

// Failure is why this end gives a connection up, with the alert that tells the peer.
type Failure struct {
	Alert Alert
	Err   error
}

// Fail makes a Failure.
func Fail(a Alert, err error) error { return &Failure{a, err} }

// Failf makes a Failure with a text.
func Failf(a Alert, format string, args ...any) error {
	return &Failure{a, fmt.Errorf(format, args...)}
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives the cause and the alert.
func (f *Failure) Unwrap() []error { return []error{f.Err, f.Alert} }

// PeerAlert is the alert with which the peer gave the connection up.
type PeerAlert struct {
	Alert Alert
	Clear bool // it came unprotected although the peer has keys: anybody can have sent it
}

// Error implements error.
func (p *PeerAlert) Error() string { return "peer sent alert: " + p.Alert.String() }

// Unwrap gives the alert.
func (p *PeerAlert) Unwrap() error { return p.Alert }

// AlertOf is the alert that an error of this end calls for; false when none is to be sent.
func AlertOf(err error) (Alert, bool) {
	var f *Failure
	if errors.As(err, &f) {
		return f.Alert, true
	}
	return 0, false
}
