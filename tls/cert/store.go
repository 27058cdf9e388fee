package cert

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
)

// ErrNone is given to clients of a store without certificates.
var ErrNone = errors.New("no certificate")

// Store chooses a certificate for a ClientHello. Set replaces all of them at once, also while
// handshakes run. The zero value is empty.
type Store struct{ table atomic.Pointer[table] }

type table struct {
	exact, wild map[string][]*tls.Certificate // wild: by the name without its first label
	byDefault   []*tls.Certificate
}

// NewStore makes a store; the first pair is the default.
func NewStore(pairs []Pair) *Store {
	s := &Store{}
	s.Set(pairs)
	return s
}

// Set replaces the certificates. Pairs with the names of the first one and another kind of key stand
// beside it as the default.
func (s *Store) Set(pairs []Pair) {
	t := &table{exact: map[string][]*tls.Certificate{}, wild: map[string][]*tls.Certificate{}}
	var first *tls.Certificate
	for i := range pairs {
		c := withLeaf(pairs[i].Certificate)
		if i == 0 {
			first = c
		}
		for _, name := range names(c) {
			t.add(name, c)
		}
		if i == 0 || sameNames(first, c) {
			t.byDefault = append(t.byDefault, c)
		}
	}
	for _, m := range []map[string][]*tls.Certificate{t.exact, t.wild, {"": t.byDefault}} {
		for _, list := range m {
			slices.SortStableFunc(list, func(a, b *tls.Certificate) int { return cost(a) - cost(b) })
		}
	}
	s.table.Store(t)
}

func (t *table) add(name string, c *tls.Certificate) {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		t.wild[rest] = append(t.wild[rest], c)
		return
	}
	t.exact[name] = append(t.exact[name], c)
}

// Get chooses: the server name's certificates, else the default ones; among them the first that the
// client can verify, ECDSA before RSA, which costs the box five times the work.
func (s *Store) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	t := s.table.Load()
	if t == nil || len(t.byDefault) == 0 {
		return nil, ErrNone
	}
	named := t.named(hello.ServerName)
	if c := supported(named, hello); c != nil {
		return c, nil
	}
	if c := supported(t.byDefault, hello); c != nil {
		return c, nil
	}
	if len(named) > 0 {
		return named[0], nil // the handshake fails with the alert that says why
	}
	return t.byDefault[0], nil
}

func (t *table) named(name string) []*tls.Certificate {
	if name == "" {
		return nil
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if list := t.exact[name]; list != nil {
		return list
	}
	if _, rest, ok := strings.Cut(name, "."); ok {
		return t.wild[rest]
	}
	return nil
}

// supported is the first certificate whose signatures the client can verify. The name was judged already.
func supported(list []*tls.Certificate, hello *tls.ClientHelloInfo) *tls.Certificate {
	if len(list) == 0 {
		return nil
	}
	anyName := *hello
	anyName.ServerName = ""
	for _, c := range list {
		if anyName.SupportsCertificate(c) == nil {
			return c
		}
	}
	return nil
}

// withLeaf copies a certificate; one without a readable leaf has no names and no known kind of key.
func withLeaf(c tls.Certificate) *tls.Certificate {
	if c.Leaf == nil && len(c.Certificate) > 0 {
		c.Leaf, _ = x509.ParseCertificate(c.Certificate[0])
	}
	return &c
}

func names(c *tls.Certificate) []string {
	if c.Leaf == nil {
		return nil
	}
	list := c.Leaf.DNSNames
	if len(list) == 0 && c.Leaf.Subject.CommonName != "" {
		list = []string{c.Leaf.Subject.CommonName}
	}
	out := make([]string, 0, len(list))
	for _, n := range list {
		out = append(out, strings.ToLower(n))
	}
	return out
}

func sameNames(a, b *tls.Certificate) bool {
	x, y := names(a), names(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func cost(c *tls.Certificate) int {
	if c.Leaf != nil {
		if _, ok := c.Leaf.PublicKey.(*ecdsa.PublicKey); ok {
			return 0
		}
	}
	return 1
}
