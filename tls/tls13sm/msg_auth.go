package tls13sm

import "sslo/tls/sm"

// encryptedExtensions answers what does not need to be known for the keys.
type encryptedExtensions struct {
	exts            extensions
	alpn            string
	recordSizeLimit uint16
}

func parseEncryptedExtensions(raw []byte) (*encryptedExtensions, error) {
	m := &encryptedExtensions{}
	r := reader{b: raw[4:]}
	block := r.sub16()
	if !r.done() {
		return nil, sm.Failf(sm.AlertDecodeError, "EncryptedExtensions are malformed")
	}
	var err error
	if m.exts, err = parseExtensions(block); err != nil {
		return nil, err
	}
	if b, ok := m.exts.find(extALPN); ok {
		list, ok := parseALPN(b)
		if !ok || len(list) != 1 {
			return nil, sm.Failf(sm.AlertDecodeError, "server's ALPN is malformed")
		}
		m.alpn = list[0]
	}
	return m, nil
}

func (m *encryptedExtensions) marshal() []byte {
	return message(typeEncryptedExtensions, func(w *builder) {
		w.vec16(func() {
			if m.alpn != "" {
				addALPN(w, []string{m.alpn})
			}
			if m.recordSizeLimit != 0 {
				addExtension(w, extRecordSizeLimit, func() { w.u16(m.recordSizeLimit) })
			}
		})
	})
}

// certificateRequest asks for a client certificate.
type certificateRequest struct {
	context     []byte
	signatures  []uint16
	authorities [][]byte
}

func parseCertificateRequest(raw []byte) (*certificateRequest, error) {
	m := &certificateRequest{}
	r := reader{b: raw[4:]}
	m.context = r.vec8()
	block := r.sub16()
	if !r.done() {
		return nil, sm.Failf(sm.AlertDecodeError, "CertificateRequest is malformed")
	}
	exts, err := parseExtensions(block)
	if err != nil {
		return nil, err
	}
	b, ok := exts.find(extSignatureAlgorithms)
	if !ok {
		return nil, sm.Failf(sm.AlertMissingExtension, "CertificateRequest without signature_algorithms")
	}
	if m.signatures, ok = parseU16List(b); !ok {
		return nil, sm.Failf(sm.AlertDecodeError, "signature_algorithms are malformed")
	}
	if b, ok := exts.find(extAuthorities); ok {
		if m.authorities, ok = parseAuthorities(b); !ok {
			return nil, sm.Failf(sm.AlertDecodeError, "certificate_authorities are malformed")
		}
	}
	return m, nil
}

func (m *certificateRequest) marshal() []byte {
	return message(typeCertificateRequest, func(w *builder) {
		w.bytes8(m.context)
		w.vec16(func() {
			addExtension(w, extSignatureAlgorithms, func() { w.u16s(m.signatures) })
			if len(m.authorities) > 0 {
				addExtension(w, extAuthorities, func() {
					w.vec16(func() {
						for _, a := range m.authorities {
							w.bytes16(a)
						}
					})
				})
			}
		})
	})
}

// certificateMsg is a chain, the leaf first.
type certificateMsg struct {
	context []byte
	chain   [][]byte
	exts    []uint16 // types of the entries' extensions
}

func parseCertificate(raw []byte) (*certificateMsg, error) {
	m := &certificateMsg{}
	r := reader{b: raw[4:]}
	m.context = r.vec8()
	list := r.sub24()
	for list.more() {
		der, block := list.vec24(), list.sub16()
		if len(der) == 0 {
			return nil, sm.Failf(sm.AlertDecodeError, "Certificate is malformed")
		}
		exts, err := parseExtensions(block)
		if err != nil {
			return nil, err
		}
		for _, x := range exts {
			m.exts = append(m.exts, x.typ)
		}
		m.chain = append(m.chain, der)
	}
	if !r.done() || !list.done() {
		return nil, sm.Failf(sm.AlertDecodeError, "Certificate is malformed")
	}
	return m, nil
}

func (m *certificateMsg) marshal() []byte {
	size := 8
	for _, der := range m.chain {
		size += len(der) + 5
	}
	w := &builder{b: make([]byte, 0, size)}
	w.u8(typeCertificate)
	w.vec24(func() {
		w.bytes8(m.context)
		w.vec24(func() {
			for _, der := range m.chain {
				w.bytes24(der)
				w.u16(0)
			}
		})
	})
	return w.b
}

// certificateVerify proves the key of the leaf.
type certificateVerify struct {
	scheme    SignatureScheme
	signature []byte
}

func parseCertificateVerify(raw []byte) (*certificateVerify, error) {
	r := reader{b: raw[4:]}
	m := &certificateVerify{scheme: SignatureScheme(r.u16())}
	m.signature = r.vec16()
	if !r.done() {
		return nil, sm.Failf(sm.AlertDecodeError, "CertificateVerify is malformed")
	}
	return m, nil
}

func (m *certificateVerify) marshal() []byte {
	return message(typeCertificateVerify, func(w *builder) {
		w.u16(uint16(m.scheme))
		w.bytes16(m.signature)
	})
}

func parseFinished(raw []byte) ([]byte, error) {
	if len(raw) != 4+secretSize {
		return nil, sm.Failf(sm.AlertDecodeError, "Finished of %d bytes", len(raw)-4)
	}
	return raw[4:], nil
}

func marshalFinished(mac []byte) []byte {
	return message(typeFinished, func(w *builder) { w.raw(mac) })
}

// newSessionTicket lets the client resume.
type newSessionTicket struct {
	lifetime uint32 // seconds
	ageAdd   uint32
	nonce    []byte
	ticket   []byte
}

func parseNewSessionTicket(raw []byte) (*newSessionTicket, error) {
	r := reader{b: raw[4:]}
	m := &newSessionTicket{lifetime: r.u32(), ageAdd: r.u32()}
	m.nonce = r.vec8()
	m.ticket = r.vec16()
	block := r.sub16()
	if !r.done() || len(m.ticket) == 0 {
		return nil, sm.Failf(sm.AlertDecodeError, "NewSessionTicket is malformed")
	}
	exts, err := parseExtensions(block)
	if err != nil {
		return nil, err
	}
	if b, ok := exts.find(extEarlyData); ok && len(b) != 4 {
		return nil, sm.Failf(sm.AlertDecodeError, "early_data of the ticket is malformed")
	}
	return m, nil
}

func (m *newSessionTicket) marshal() []byte {
	return message(typeNewSessionTicket, func(w *builder) {
		w.u32(m.lifetime)
		w.u32(m.ageAdd)
		w.bytes8(m.nonce)
		w.bytes16(m.ticket)
		w.u16(0)
	})
}

func parseKeyUpdate(raw []byte) (answer bool, err error) {
	if len(raw) != 5 {
		return false, sm.Failf(sm.AlertDecodeError, "KeyUpdate is malformed")
	}
	if raw[4] > 1 {
		return false, sm.Failf(sm.AlertIllegalParameter, "KeyUpdate asks for %d", raw[4])
	}
	return raw[4] == 1, nil
}

func marshalKeyUpdate(answer bool) []byte {
	return message(typeKeyUpdate, func(w *builder) {
		if answer {
			w.u8(1)
			return
		}
		w.u8(0)
	})
}
