package relay

// Write implements net.Conn. Between corked and flush the records are gathered and go out in one call.
func (w *Wire) Write(p []byte) (int, error) {
	w.out.Lock()
	defer w.out.Unlock()
	if w.cork == nil {
		return w.TCPConn.Write(p)
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

// corked runs write with its records gathered.
func (w *Wire) corked(write func(b []byte) (int, error), b []byte) error {
	w.out.Lock()
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
