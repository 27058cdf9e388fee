package hello

// cursor reads TLS's presentation language. After a read beyond the end it is bad and yields zeros.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	t := c.b[:n]
	c.b = c.b[n:]
	return t
}

func (c *cursor) skip(n int) { c.take(n) }

func (c *cursor) u8() uint8 {
	if t := c.take(1); t != nil {
		return t[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if t := c.take(2); t != nil {
		return uint16(t[0])<<8 | uint16(t[1])
	}
	return 0
}

// vector16 takes a vector with a two-byte length.
func (c *cursor) vector16() cursor {
	t := c.take(int(c.u16()))
	return cursor{b: t, bad: c.bad}
}

// sub16 and sub8 take a vector that must be all there is.
func (c *cursor) sub16() *cursor { return c.sub(int(c.u16())) }
func (c *cursor) sub8() *cursor  { return c.sub(int(c.u8())) }

func (c *cursor) sub(n int) *cursor {
	t := c.take(n)
	if len(c.b) > 0 {
		c.bad, t = true, nil
	}
	c.b = t
	return c
}

func (c cursor) u16s() []uint16 {
	if len(c.b)%2 != 0 {
		return nil
	}
	s := make([]uint16, 0, len(c.b)/2)
	for len(c.b) > 0 {
		s = append(s, c.u16())
	}
	return s
}

// serverName is the first host name of a server_name extension.
func (c *cursor) serverName() string {
	name := ""
	for list := c.sub16(); len(list.b) > 0 && !list.bad; {
		kind, host := list.u8(), list.vector16()
		if kind == 0 && name == "" {
			name = string(host.b)
		}
	}
	return name
}

func (c *cursor) protocols() (s []string) {
	for list := c.sub16(); len(list.b) > 0 && !list.bad; {
		s = append(s, string(list.take(int(list.u8()))))
	}
	return s
}

func (c *cursor) shares() (s []uint16) {
	for list := c.sub16(); len(list.b) > 0 && !list.bad; {
		s = append(s, list.u16())
		list.vector16()
	}
	return s
}
