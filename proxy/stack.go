package proxy

// grown runs fn on a stack that is large enough for a handshake. A goroutine's stack grows by doubling, each
// time with a walk over the frames that are on it, the most of them when crypto/tls is at its deepest; here
// nothing is on it yet.
func grown(fn func()) {
	room()
	fn()
}

//go:noinline
func room() byte {
	var b [9 << 10]byte
	return b[len(b)-1]
}
