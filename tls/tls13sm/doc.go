// Package tls13sm owns TLS 1.3 (RFC 8446) with the ShangMi suites of RFC 8998: TLS_SM4_GCM_SM3 and
// TLS_SM4_CCM_SM3 over curveSM2 with sm2sig_sm3, as server and as client. Names and behaviour follow
// crypto/tls. It refuses to know other versions and other suites: who speaks what is chosen before, by
// the ClientHello. It never takes early data and offers PSKs only with a fresh key exchange.
package tls13sm
