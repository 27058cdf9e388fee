// Package term owns TLS termination: it chooses the TLS stack by the ClientHello, runs handshakes with
// clients and with servers, and rotates session ticket keys. It is given connections and knows no listener,
// no policy and no chain.
package term
