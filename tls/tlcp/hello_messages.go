package tlcp

import (
	"net/netip"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"sslo/tls/sm"
)

type clientHelloMsg struct {
	version     uint16
	random      []byte
	sessionID   []byte
	suites      []uint16
	compression []byte
	extensions  []uint16 // numbers, in their order
	serverName  string
	alpn        []string
	tickets     bool // session_ticket is there
	ticket      []byte
}

// offers reports whether the server may answer an extension.
func (m *clientHelloMsg) offers(ext uint16) bool {
	switch ext {
	case extServerName:
		return m.serverName != ""
	case extALPN:
		return len(m.alpn) > 0
	case extSessionTicket:
		return m.tickets
	}
	return false
}

func (m *clientHelloMsg) marshal() ([]byte, error) {
	return message(typeClientHello, func(b *cryptobyte.Builder) {
		b.AddUint16(m.version)
		b.AddBytes(m.random)
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.sessionID) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, s := range m.suites {
				b.AddUint16(s)
			}
		})
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.compression) })
		if m.serverName != "" || len(m.alpn) > 0 || m.tickets {
			b.AddUint16LengthPrefixed(m.addExtensions)
		}
	})
}

func (m *clientHelloMsg) addExtensions(b *cryptobyte.Builder) {
	if m.serverName != "" {
		addExtension(b, extServerName, func(b *cryptobyte.Builder) {
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
				b.AddUint8(0)
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(m.serverName)) })
			})
		})
	}
	if len(m.alpn) > 0 {
		addExtension(b, extALPN, func(b *cryptobyte.Builder) { addProtocols(b, m.alpn) })
	}
	if m.tickets {
		addExtension(b, extSessionTicket, func(b *cryptobyte.Builder) { b.AddBytes(m.ticket) })
	}
}

func addExtension(b *cryptobyte.Builder, ext uint16, add cryptobyte.BuilderContinuation) {
	b.AddUint16(ext)
	b.AddUint16LengthPrefixed(add)
}

func addProtocols(b *cryptobyte.Builder, protos []string) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, p := range protos {
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(p)) })
		}
	})
}

func (m *clientHelloMsg) unmarshal(msg []byte) error {
	s := body(msg)
	var suites cryptobyte.String
	if !s.ReadUint16(&m.version) || !s.ReadBytes(&m.random, randomSize) ||
		!readUint8Vector(&s, &m.sessionID) || len(m.sessionID) > maxSessionIDLength ||
		!s.ReadUint16LengthPrefixed(&suites) || len(suites)%2 != 0 ||
		!readUint8Vector(&s, &m.compression) {
		return malformed()
	}
	for !suites.Empty() {
		var id uint16
		suites.ReadUint16(&id)
		m.suites = append(m.suites, id)
	}
	return eachExtension(s, func(ext uint16, data cryptobyte.String) error {
		m.extensions = append(m.extensions, ext)
		return m.extension(ext, data)
	})
}

// eachExtension reads the block of extensions, which may be missing or empty.
func eachExtension(s cryptobyte.String, each func(uint16, cryptobyte.String) error) error {
	if s.Empty() {
		return nil
	}
	var block cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&block) || !s.Empty() {
		return malformed()
	}
	for !block.Empty() {
		var ext uint16
		var data cryptobyte.String
		if !block.ReadUint16(&ext) || !block.ReadUint16LengthPrefixed(&data) {
			return malformed()
		}
		if err := each(ext, data); err != nil {
			return err
		}
	}
	return nil
}

// extension reads one extension. Unknown ones, and those of TLS that mean nothing here, are passed over.
func (m *clientHelloMsg) extension(ext uint16, data cryptobyte.String) error {
	var ok bool
	switch ext {
	case extServerName:
		m.serverName, ok = readServerName(data)
	case extALPN:
		m.alpn, ok = readProtocols(data)
	case extSessionTicket:
		m.tickets, m.ticket, ok = true, data, true
	default:
		ok = true
	}
	if !ok {
		return malformed()
	}
	return nil
}

// readServerName gives the host name, without a final dot. An address is no host name.
func readServerName(data cryptobyte.String) (name string, ok bool) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() {
		return "", false
	}
	for !list.Empty() {
		var typ uint8
		var host []byte
		if !list.ReadUint8(&typ) || !readUint16Vector(&list, &host) {
			return "", false
		}
		if typ == 0 && name == "" {
			name = strings.TrimSuffix(string(host), ".")
		}
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "", true
	}
	return name, true
}

func readProtocols(data cryptobyte.String) (protos []string, ok bool) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return nil, false
	}
	for !list.Empty() {
		var p []byte
		if !readUint8Vector(&list, &p) || len(p) == 0 {
			return nil, false
		}
		protos = append(protos, string(p))
	}
	return protos, true
}

// serverHelloMsg never answers server_name: old clients can not read any extension here, and nothing hangs on it.
type serverHelloMsg struct {
	version     uint16
	random      []byte
	sessionID   []byte
	suite       uint16
	compression uint8
	extensions  []uint16
	alpn        string
	tickets     bool
}

func (m *serverHelloMsg) marshal() ([]byte, error) {
	return message(typeServerHello, func(b *cryptobyte.Builder) {
		b.AddUint16(m.version)
		b.AddBytes(m.random)
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(m.sessionID) })
		b.AddUint16(m.suite)
		b.AddUint8(m.compression)
		if m.alpn != "" || m.tickets {
			b.AddUint16LengthPrefixed(m.addExtensions)
		}
	})
}

func (m *serverHelloMsg) addExtensions(b *cryptobyte.Builder) {
	if m.alpn != "" {
		addExtension(b, extALPN, func(b *cryptobyte.Builder) { addProtocols(b, []string{m.alpn}) })
	}
	if m.tickets {
		addExtension(b, extSessionTicket, func(*cryptobyte.Builder) {})
	}
}

func (m *serverHelloMsg) unmarshal(msg []byte) error {
	s := body(msg)
	if !s.ReadUint16(&m.version) || !s.ReadBytes(&m.random, randomSize) ||
		!readUint8Vector(&s, &m.sessionID) || len(m.sessionID) > maxSessionIDLength ||
		!s.ReadUint16(&m.suite) || !s.ReadUint8(&m.compression) {
		return malformed()
	}
	return eachExtension(s, func(ext uint16, data cryptobyte.String) error {
		m.extensions = append(m.extensions, ext)
		return m.extension(ext, data)
	})
}

func (m *serverHelloMsg) extension(ext uint16, data cryptobyte.String) error {
	switch ext {
	case extALPN:
		protos, ok := readProtocols(data)
		if !ok || len(protos) != 1 {
			return malformed()
		}
		m.alpn = protos[0]
	case extSessionTicket:
		m.tickets = true
	}
	return nil
}

// unlisted refuses answers to what the client did not ask. An empty renegotiation_info is let pass: some
// servers send it to everybody.
func (m *serverHelloMsg) unlisted(hello *clientHelloMsg) error {
	for _, ext := range m.extensions {
		if ext != extRenegotiation && !hello.offers(ext) {
			return sm.Failf(sm.AlertUnsupportedExtension, "server answers extension %d, which was not offered", ext)
		}
	}
	return nil
}
