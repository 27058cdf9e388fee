package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"sslo/monitor"
)

// DNSSpec: a query, by the NIC if one is named, and what its answer must be.
type DNSSpec struct {
	Address netip.AddrPort
	NIC     string
	Name    string
	Type    DNSType
	Expect  string // regular expression that one of the answers must match; "": NOERROR is enough
}

// DNSType is the type of record that is asked for.
type DNSType uint16

// The types that can be asked for.
const (
	DNSA     = DNSType(layers.DNSTypeA)
	DNSAAAA  = DNSType(layers.DNSTypeAAAA)
	DNSCNAME = DNSType(layers.DNSTypeCNAME)
	DNSMX    = DNSType(layers.DNSTypeMX)
	DNSNS    = DNSType(layers.DNSTypeNS)
	DNSSOA   = DNSType(layers.DNSTypeSOA)
	DNSTXT   = DNSType(layers.DNSTypeTXT)
)

// DNS probes by a query over UDP.
type DNS struct {
	spec   DNSSpec
	expect *regexp.Regexp
}

// Open is part of Spec.
func (s DNSSpec) Open() (Prober, error) {
	expect, err := regexp.Compile(s.Expect)
	return DNS{s, expect}, err
}

func (s DNSSpec) String() string {
	return fmt.Sprintf("dns %s %s at %s%s", s.Name, layers.DNSType(s.Type), s.Address, by(s.NIC))
}

// Close is part of Prober.
func (DNS) Close() error { return nil }

// Probe is part of Prober.
func (p DNS) Probe(ctx context.Context) monitor.Result {
	return timed(ctx, func() (string, error) {
		id := uint16(rand.Uint32())
		query, err := p.query(id)
		if err != nil {
			return "", err
		}
		return "", datagram(ctx, p.spec.Address, p.spec.NIC, query, func(answer []byte) error { return p.judge(id, answer) })
	})
}

func (p DNS) query(id uint16) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := (&layers.DNS{ID: id, RD: true, QDCount: 1, Questions: []layers.DNSQuestion{{
		Name: []byte(strings.TrimSuffix(p.spec.Name, ".")), Type: layers.DNSType(p.spec.Type), Class: layers.DNSClassIN,
	}}}).SerializeTo(buf, gopacket.SerializeOptions{FixLengths: true})
	return buf.Bytes(), err
}

func (p DNS) judge(id uint16, answer []byte) error {
	var d layers.DNS
	if err := d.DecodeFromBytes(answer, gopacket.NilDecodeFeedback); err != nil {
		return errors.New("the answer is no DNS message")
	}
	switch {
	case d.ID != id || !d.QR:
		return errNotOurs
	case d.ResponseCode != layers.DNSResponseCodeNoErr:
		return fmt.Errorf("answered %s", d.ResponseCode)
	case p.spec.Expect == "":
		return nil
	}
	var all []string
	for i := range d.Answers {
		text := record(&d.Answers[i])
		if d.Answers[i].Type == layers.DNSType(p.spec.Type) && p.expect.MatchString(text) {
			return nil
		}
		all = append(all, text)
	}
	return fmt.Errorf("no answer matches %q: %s", p.spec.Expect, strings.Join(all, ", "))
}

// record is the content of a record as a zone file would have it.
func record(r *layers.DNSResourceRecord) string {
	switch r.Type {
	case layers.DNSTypeA, layers.DNSTypeAAAA:
		return r.IP.String()
	case layers.DNSTypeCNAME:
		return string(r.CNAME)
	case layers.DNSTypeNS:
		return string(r.NS)
	case layers.DNSTypeMX:
		return fmt.Sprintf("%d %s", r.MX.Preference, r.MX.Name)
	case layers.DNSTypeSOA:
		return fmt.Sprintf("%s %s %d", r.SOA.MName, r.SOA.RName, r.SOA.Serial)
	case layers.DNSTypeTXT:
		var b strings.Builder
		for _, t := range r.TXTs {
			b.Write(t)
		}
		return b.String()
	}
	return r.Type.String()
}
