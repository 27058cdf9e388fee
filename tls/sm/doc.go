// Package sm owns what the stacks of the SM suites (TLCP 1.1, and TLS 1.3 with RFC 8998) have in common:
// records and their limits, the connection over them, alerts, SM4 AEADs, the transcript, SM2 signatures
// with their IDs, and SM2 certificates with cached checks of their chains. It knows no handshake message, no
// cipher suite and no key schedule: those are the protocols' own.
//
// A protocol makes Records over the transport, runs its handshake with ReadHandshake, WriteHandshake, Flush,
// SetIn and SetOut, and embeds the Conn of NewConn as its net.Conn. Errors that end a connection are
// Failures, which carry the alert; nobody but Conn sends it.
package sm
