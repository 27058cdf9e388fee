package peer

import (
	"os"
	"path/filepath"

	"sslo/test/lab/pki"
)

// writeCerts makes a CA and with it the certificates of front and origin, ECDSA P-256. HAProxy wants
// certificate and key in one file, NAME.both.
func writeCerts(dir string, addresses ...string) error {
	ca, err := pki.New("bench CA")
	if err != nil {
		return err
	}
	for _, name := range []string{"front", "origin"} {
		leaf, err := ca.Issue(pki.ECDSA, append([]string{name + ".test"}, addresses...)...)
		if err != nil {
			return err
		}
		if err := leaf.Write(dir, name); err != nil {
			return err
		}
		both := append(leaf.CertPEM, leaf.KeyPEM...)
		if err := os.WriteFile(filepath.Join(dir, name+".both"), both, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM, 0o644)
}
