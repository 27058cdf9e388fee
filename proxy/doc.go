// Package proxy owns the proxy plane: front (clients, ClientHello, TLS, the inner connection), back
// (what comes out of the chain, servers, TLS again) and the table that ties both halves of a connection
// together. It knows chains only by name and mark: which devices they have, and whether those live, is
// the business of others. It parses nothing above TLS and reads no configuration file.
//
// # How a connection ends
//
// What one side did is done to the other, so that a body that was cut is never shown as whole:
//
//	seen                                          passed on
//	client: close_notify, or FIN in clear text    inner FIN, then server: close_notify and FIN
//	client: FIN without close_notify              inner FIN, then server: FIN without close_notify
//	server: close_notify and FIN                  inner FIN, then client: close_notify and FIN
//	server: FIN between two records, no           inner FIN, then client: FIN without close_notify (TLS's own
//	  close_notify                                  sign of truncation, RFC 8446 6.1), after all that was received
//	server: RST, or FIN inside a record           what was received is delivered, then RST on the inner
//	                                                connection and to the client
//	client: RST, or FIN inside a record           RST on the inner connection and to the server
//	inner: RST (a device, the session plane)      RST to both, at once
//	inner: FIN that the other half did not send   RST to both: a device cut the flow. What it said to the
//	                                                client (a block page) is delivered before
//
// One direction that has ended leaves the other open: half-closed connections live until they idle out.
package proxy
