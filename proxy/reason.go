package proxy

// Reason says why a connection ended. Every connection ends with exactly one, the first cause.
type Reason uint8

const (
	ReasonNone Reason = iota // still open
	ReasonOK                 // both sides closed in order
	ReasonClientReset
	ReasonServerReset
	ReasonInnerReset       // a device, or the session plane, reset the inner connection
	ReasonServerTruncated  // the server ended without close_notify: passed on as such
	ReasonDeviceClosed     // a device ended the inner connection that neither end had closed
	ReasonHelloTimeout     // no whole ClientHello in time
	ReasonHelloGarbage     // not a ClientHello
	ReasonHelloTooLarge    // beyond 64 kB
	ReasonClientGone       // closed before its ClientHello was complete
	ReasonHandshakeFailed  // TLS with the client
	ReasonHandshakeTimeout // TLS with the client
	ReasonNoServer         // no member of the pool in service, or none could be reached
	ReasonServerHandshake  // TLS with the server: certificate, version, alert
	ReasonNoReturn         // a device did not return the flow: the inner connection never came to back
	ReasonInnerFailed      // the inner connection could not be made
	ReasonChainDown        // on_down: reset or drop
	ReasonPolicyReject
	ReasonPolicyDrop
	ReasonLimit       // connections of the virtual server
	ReasonClientLimit // connections of the client address
	ReasonDescriptors // the process has no descriptors left
	ReasonHandshakes  // handshakes in progress, in all or of the client address
	ReasonIdle
	ReasonReplaced // a newer connection took the inner tuple
	ReasonAborted  // by an operator
	ReasonShutdown
	ReasonScriptError // the script failed, and its on_error is reject
	ReasonInternal
	reasons
)

var reasonNames = [reasons]string{"open", "ok", "client-reset", "server-reset", "inner-reset", "server-truncated",
	"device-closed", "hello-timeout", "hello-garbage", "hello-too-large", "client-gone", "handshake-failed",
	"handshake-timeout", "no-server", "server-handshake-failed", "device-did-not-return", "inner-connect-failed",
	"chain-down", "policy-reject", "policy-drop", "limit", "client-limit", "fd-limit", "handshake-limit", "idle", "replaced", "aborted",
	"shutdown", "script-error", "internal"}

func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown"
}
