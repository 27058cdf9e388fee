package tls13sm

// reader reads TLS's presentation language. After a read beyond the end it is bad and yields zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	t := r.b[:n:n]
	r.b = r.b[n:]
	return t
}

func (r *reader) uint(n int) (v int) {
	for _, b := range r.take(n) {
		v = v<<8 | int(b)
	}
	return v
}

func (r *reader) u8() uint8   { return uint8(r.uint(1)) }
func (r *reader) u16() uint16 { return uint16(r.uint(2)) }
func (r *reader) u32() uint32 { return uint32(r.uint(4)) }

// vec8, vec16 and vec24 take a vector behind a length of that many bits.
func (r *reader) vec8() []byte  { return r.take(r.uint(1)) }
func (r *reader) vec16() []byte { return r.take(r.uint(2)) }
func (r *reader) vec24() []byte { return r.take(r.uint(3)) }

// sub8, sub16 and sub24 are the same, to be read on.
func (r *reader) sub8() reader  { b := r.vec8(); return reader{b, r.bad} }
func (r *reader) sub16() reader { b := r.vec16(); return reader{b, r.bad} }
func (r *reader) sub24() reader { b := r.vec24(); return reader{b, r.bad} }

// more tells that there is something left to read.
func (r *reader) more() bool { return !r.bad && len(r.b) > 0 }

// done tells that all was read and nothing was missing.
func (r *reader) done() bool { return !r.bad && len(r.b) == 0 }

// u16s reads the rest as a list of numbers.
func (r *reader) u16s() []uint16 {
	list := make([]uint16, 0, len(r.b)/2)
	for r.more() {
		list = append(list, r.u16())
	}
	return list
}

// builder writes TLS's presentation language.
type builder struct{ b []byte }

func (w *builder) u8(v uint8)    { w.b = append(w.b, v) }
func (w *builder) u16(v uint16)  { w.b = append(w.b, byte(v>>8), byte(v)) }
func (w *builder) u24(v int)     { w.b = append(w.b, byte(v>>16), byte(v>>8), byte(v)) }
func (w *builder) u32(v uint32)  { w.u16(uint16(v >> 16)); w.u16(uint16(v)) }
func (w *builder) raw(b []byte)  { w.b = append(w.b, b...) }
func (w *builder) vec8(f func()) { w.vec(1, f) }

func (w *builder) vec16(f func()) { w.vec(2, f) }
func (w *builder) vec24(f func()) { w.vec(3, f) }

// vec writes what f writes behind its length in n bytes. All that we send fits: what comes from the
// configuration is checked before.
func (w *builder) vec(n int, f func()) {
	at := len(w.b)
	w.b = append(w.b, make([]byte, n)...)
	f()
	for size, i := len(w.b)-at-n, n-1; i >= 0; i-- {
		w.b[at+i] = byte(size)
		size >>= 8
	}
}

func (w *builder) bytes8(b []byte)  { w.vec8(func() { w.raw(b) }) }
func (w *builder) bytes16(b []byte) { w.vec16(func() { w.raw(b) }) }
func (w *builder) bytes24(b []byte) { w.vec24(func() { w.raw(b) }) }

func (w *builder) u16s(list []uint16) {
	w.vec16(func() {
		for _, v := range list {
			w.u16(v)
		}
	})
}

// message makes a handshake message.
func message(typ uint8, f func(*builder)) []byte {
	w := &builder{b: make([]byte, 0, 256)}
	w.u8(typ)
	w.vec24(func() { f(w) })
	return w.b
}
