package relay

// Write implements net.Conn. During the handshake, and between corked and its flush, what is written is
// gathered and goes out in one call. The last flight of a client's handshake even waits for the first data:
// Fill sends it when there is none.
func (w *Wire) Write(p []byte) (int, error) {
	w.out.Lock()
	defer w.out.Unlock()
	if w.cork == nil && w.relay && w.gathered == nil {
		return w.TCPConn.Write(p)
	}
	if w.cork == nil {
		return len(p), w.gather(p)
	}
	if w.cork.N+len(p) > len(w.cork.B) {
		if err := w.flushLocked(); err != nil {
			return 0, err
		}
	}
	if len(p) > len(w.cork.B) {
		return w.TCPConn.Write(p)
	}
	w.cork.N += copy(w.cork.B[w.cork.N:], p)
	return len(p), nil
}

// gather keeps a handshake's bytes back; in the relay phase they go out together with p.
func (w *Wire) gather(p []byte) error {
	w.gathered = append(w.gathered, p...)
	w.pending.Store(true)
	if !w.relay {
		return nil
	}
	return w.sendGathered()
}

func (w *Wire) sendGathered() error {
	if w.gathered == nil {
		return nil
	}
	p := w.gathered
	w.gathered = nil
	w.pending.Store(false)
	_, err := w.TCPConn.Write(p)
	return err
}

// Flush sends what the handshake wrote last. It never waits for a writer, who sends it himself.
func (w *Wire) Flush() {
	if w.pending.Load() && w.out.TryLock() {
		_ = w.sendGathered() // a failure comes back with the next read or write
		w.out.Unlock()
	}
}

// Close implements Stream and net.Conn; an alert that ended the handshake still goes out.
func (w *Wire) Close() error {
	w.Flush()
	return w.TCPConn.Close()
}

// corked runs write with its records gathered.
func (w *Wire) corked(write func(b []byte) (int, error), b []byte) error {
	w.out.Lock()
	if err := w.sendGathered(); err != nil {
		w.out.Unlock()
		return err
	}
	w.cork = w.bufs.get()
	w.out.Unlock()
	_, err := write(b)
	w.out.Lock()
	defer w.out.Unlock()
	if err == nil {
		err = w.flushLocked()
	}
	w.bufs.Release(w.cork)
	w.cork = nil
	return err
}

func (w *Wire) flushLocked() error {
	if w.cork.N == 0 {
		return nil
	}
	_, err := w.TCPConn.Write(w.cork.B[:w.cork.N])
	w.cork.N = 0
	return err
}
