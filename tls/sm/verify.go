package sm

import (
	"errors"
	"sync"
	"time"

	"github.com/emmansun/gmsm/smx509"
)

// Verifier checks chains of certificates against one set of roots. Chains that were found good are
// remembered, with the time in which all their certificates are valid; failures never are. Revocation and
// names are asked anew each time.
type Verifier struct {
	roots   *smx509.CertPool
	usages  []smx509.ExtKeyUsage
	revoked func(cert, issuer *smx509.Certificate) error

	mu   sync.Mutex
	good map[chainKey][]verified
}

// verifiedMax bounds the chains that a Verifier remembers.
const verifiedMax = 1024

// chainKey is the identity of certificates from ParseCertificate, leaf first. What it is the key of holds
// them too, so no other certificate can take their place in memory.
type chainKey [6]*smx509.Certificate

type verified struct {
	chain       []*smx509.Certificate
	from, until time.Time
}

// NewVerifier makes a verifier; nil roots are the system's, nil revoked revokes nothing. roots must not
// change any more.
func NewVerifier(roots *smx509.CertPool, usage smx509.ExtKeyUsage, revoked func(cert, issuer *smx509.Certificate) error) *Verifier {
	return &Verifier{roots: roots, usages: []smx509.ExtKeyUsage{usage}, revoked: revoked, good: map[chainKey][]verified{}}
}

// Verify gives the chains from a leaf to a root, through any of the other certificates. Errors are Failures.
func (v *Verifier) Verify(leaf *smx509.Certificate, others []*smx509.Certificate, now time.Time) ([][]*smx509.Certificate, error) {
	key, keyed := keyOf(leaf, others)
	chains := v.known(key, keyed, now)
	if chains == nil {
		var err error
		if chains, err = v.build(leaf, others, now); err != nil {
			return nil, &Failure{alertOfChain(err), err}
		}
		v.remember(key, keyed, chains)
	}
	return v.unrevoked(chains)
}

func keyOf(leaf *smx509.Certificate, others []*smx509.Certificate) (key chainKey, ok bool) {
	if len(others) >= len(key) {
		return key, false
	}
	key[0] = leaf
	copy(key[1:], others)
	return key, true
}

func (v *Verifier) known(key chainKey, keyed bool, now time.Time) (chains [][]*smx509.Certificate) {
	if !keyed {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range v.good[key] {
		if !now.Before(g.from) && !now.After(g.until) {
			chains = append(chains, g.chain)
		}
	}
	return chains
}

func (v *Verifier) build(leaf *smx509.Certificate, others []*smx509.Certificate, now time.Time) ([][]*smx509.Certificate, error) {
	opts := smx509.VerifyOptions{Roots: v.roots, Intermediates: smx509.NewCertPool(), CurrentTime: now, KeyUsages: v.usages}
	for _, c := range others {
		opts.Intermediates.AddCert(c)
	}
	return leaf.Verify(opts)
}

func (v *Verifier) remember(key chainKey, keyed bool, chains [][]*smx509.Certificate) {
	if !keyed {
		return
	}
	var all []verified
	for _, chain := range chains {
		g := verified{chain, chain[0].NotBefore, chain[0].NotAfter}
		for _, c := range chain[1:] {
			if c.NotBefore.After(g.from) {
				g.from = c.NotBefore
			}
			if c.NotAfter.Before(g.until) {
				g.until = c.NotAfter
			}
		}
		all = append(all, g)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	evict(v.good, verifiedMax)
	v.good[key] = all
}

// unrevoked leaves the chains in which nothing is revoked.
func (v *Verifier) unrevoked(chains [][]*smx509.Certificate) ([][]*smx509.Certificate, error) {
	if v.revoked == nil {
		return chains, nil
	}
	var good [][]*smx509.Certificate
	var last error
	for _, chain := range chains {
		if err := v.check(chain); err != nil {
			last = err
			continue
		}
		good = append(good, chain)
	}
	if len(good) == 0 {
		return nil, &Failure{AlertCertificateRevoked, last}
	}
	return good, nil
}

func (v *Verifier) check(chain []*smx509.Certificate) error {
	for i := 0; i+1 < len(chain); i++ {
		if err := v.revoked(chain[i], chain[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func alertOfChain(err error) Alert {
	var invalid smx509.CertificateInvalidError
	var unknown smx509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return AlertUnknownCA
	case errors.As(err, &invalid) && invalid.Reason == smx509.Expired:
		return AlertCertificateExpired
	case errors.As(err, &invalid) && invalid.Reason == smx509.IncompatibleUsage:
		return AlertUnsupportedCertificate
	}
	return AlertBadCertificate
}
