package sm

import "io"

// fill waits until n bytes are buffered. A buffer is held only while something is in it, so that an idle
// connection over a transport that says "not yet" needs none.
func (r *Records) fill(n int) error {
	in := &r.in
	for empty := 0; in.w-in.r < n; {
		in.room(n)
		m, err := r.conn.Read((*in.buf)[in.w:])
		in.w += m
		if m > 0 {
			empty = 0
			continue
		}
		if empty++; err == nil && empty >= maxEmptyReads {
			err = io.ErrNoProgress
		}
		if err != nil {
			return in.ended(err)
		}
	}
	return nil
}

// ended gives the buffer back, and tells an end between records from one inside.
func (in *inHalf) ended(err error) error {
	if in.r == in.w {
		in.release()
	} else if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (in *inHalf) room(n int) {
	if in.buf == nil {
		in.buf = single.Get().(*[]byte)
		in.r, in.w = 0, 0
	}
	if in.r > 0 && (in.r == in.w || len(*in.buf)-in.r < n) {
		in.w = copy(*in.buf, (*in.buf)[in.r:in.w])
		in.r = 0
	}
}

// release gives the buffer back when nothing refers to it.
func (in *inHalf) release() {
	if in.buf != nil && in.r == in.w && len(in.data) == 0 {
		single.Put(in.buf)
		in.buf, in.data = nil, nil
	}
}
