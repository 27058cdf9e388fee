package sm

import (
	"errors"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"
)

// chainOf is the recorded server's signing certificate, the authority between and the root.
func chainOf(t *testing.T) (leaf, sub, root *smx509.Certificate) {
	t.Helper()
	one := func(name string) *smx509.Certificate {
		chain, err := ParseChainPEM(vector(t, name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseCertificate(chain[0].Raw)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return one("server_sign.crt"), one("sub.crt"), one("root.crt")
}

func verifierOf(root *smx509.Certificate, revoked func(_, _ *smx509.Certificate) error) *Verifier {
	pool := smx509.NewCertPool()
	pool.AddCert(root)
	return NewVerifier(pool, smx509.ExtKeyUsageServerAuth, revoked)
}

func wantVerify(t *testing.T, what string, err error, want Alert) {
	t.Helper()
	if a, ok := AlertOf(err); (want == 0) != (err == nil) || want != 0 && (!ok || a != want) {
		t.Errorf("%s: %v, want alert %d", what, err, uint8(want))
	}
}

// What is remembered of a chain stands for that chain alone: not for the leaf with other certificates, not for
// other roots, not for another time. That a chain was bad is not remembered at all.
func TestVerifierRemembersNoMoreThanItSaw(t *testing.T) {
	leaf, sub, root := chainOf(t)
	v, now := verifierOf(root, nil), leaf.NotBefore.Add(time.Hour)
	verify := func(now time.Time, others ...*smx509.Certificate) error {
		_, err := v.Verify(leaf, others, now)
		return err
	}
	wantVerify(t, "without the authority between", verify(now), AlertUnknownCA)
	wantVerify(t, "with it", verify(now, sub), 0)
	wantVerify(t, "remembered", verify(now, sub), 0)
	if len(v.good) != 1 {
		t.Errorf("%d chains are remembered, want the good one", len(v.good))
	}
	wantVerify(t, "without it again", verify(now), AlertUnknownCA)
	wantVerify(t, "with another one", verify(now, root), AlertUnknownCA)
	wantVerify(t, "after its time", verify(leaf.NotAfter.Add(time.Second), sub), AlertCertificateExpired)
	wantVerify(t, "before its time", verify(leaf.NotBefore.Add(-time.Second), sub), AlertCertificateExpired)
	wantVerify(t, "in its time again", verify(now, sub), 0)
	_, err := verifierOf(leaf, nil).Verify(leaf, nil, now)
	wantVerify(t, "another verifier trusts the leaf", err, 0)
}

// A changed certificate is another certificate, however alike.
func TestVerifierLooksAtEveryByte(t *testing.T) {
	leaf, sub, root := chainOf(t)
	v, now := verifierOf(root, nil), leaf.NotBefore.Add(time.Hour)
	if _, err := v.Verify(leaf, []*smx509.Certificate{sub}, now); err != nil {
		t.Fatal(err)
	}
	forged := append([]byte(nil), leaf.Raw...)
	forged[len(forged)-1] ^= 1 // of the signature
	c, err := ParseCertificate(forged)
	if err != nil {
		t.Fatal(err)
	}
	_, err = v.Verify(c, []*smx509.Certificate{sub}, now)
	wantVerify(t, "forged", err, AlertUnknownCA)
}

func TestRevocationIsAskedEachTime(t *testing.T) {
	leaf, sub, root := chainOf(t)
	var gone *smx509.Certificate
	v := verifierOf(root, func(c, issuer *smx509.Certificate) error {
		if c == gone {
			return errors.New("revoked")
		}
		return nil
	})
	for _, x := range []struct {
		gone *smx509.Certificate
		want Alert
	}{{nil, 0}, {leaf, AlertCertificateRevoked}, {sub, AlertCertificateRevoked}, {nil, 0}} {
		gone = x.gone
		_, err := v.Verify(leaf, []*smx509.Certificate{sub}, leaf.NotBefore.Add(time.Hour))
		wantVerify(t, "revocation", err, x.want)
	}
}

func TestRememberedChainsAreBounded(t *testing.T) {
	leaf, sub, root := chainOf(t)
	v := verifierOf(root, nil)
	for range verifiedMax + 100 { // each time another certificate in memory
		copied, err := smx509.ParseCertificate(leaf.Raw)
		if err != nil {
			t.Fatal(err)
		}
		v.remember(chainKey{copied, sub}, true, [][]*smx509.Certificate{{copied, sub, root}})
	}
	if len(v.good) != verifiedMax {
		t.Errorf("%d chains, want %d", len(v.good), verifiedMax)
	}
}
