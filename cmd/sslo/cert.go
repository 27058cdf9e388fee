package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"github.com/spf13/cobra"

	"sslo/tls/cert/issue"
	"sslo/tls/sm"
)

func init() { register(newCertCmd) }

// certOptions are those of the commands that make files.
type certOptions struct {
	kind, ca, dir, file, subject, password string
	days                                   int
	single                                 bool
}

func newCertCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make certificates for labs: authorities, RSA, ECDSA and SM2 leaves, pairs for TLCP",
		Long: `Make certificates for labs and tests. Nothing is kept but the files, which are written
into a folder as FILE.pem and FILE.key (PKCS #8); of a pair for TLCP as FILE-enc.pem and
FILE-enc.key too. Files that are there already are not overwritten.`,
		Example: `  sslo cert ca --dir certs --type sm2 --file ca-sm
  sslo cert leaf www.test 192.0.2.10 --dir certs --ca ca-sm --type sm2 --file www-sm
  sslo cert ca --dir certs
  sslo cert leaf www.test --dir certs --type rsa --file www
  cat certs/ca.pem certs/ca-sm.pem > certs/all.pem`,
		Args: noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertCACmd(), newCertLeafCmd(), newCertCRLCmd())
	return cmd
}

func (o *certOptions) flags(cmd *cobra.Command, file string, days int) {
	f := cmd.Flags()
	f.StringVar(&o.kind, "type", "ecdsa", "kind of key: `ecdsa`, rsa or sm2")
	f.StringVar(&o.dir, "dir", ".", "folder of the files")
	f.StringVar(&o.file, "file", file, "name of the files, without .pem")
	f.StringVar(&o.subject, "subject", "", "common name")
	f.IntVar(&o.days, "days", days, "lifetime in days")
}

func (o *certOptions) request(names []string) issue.Request {
	return issue.Request{Kind: issue.Kind(o.kind), Subject: o.subject, Names: names, Lifetime: time.Duration(o.days) * 24 * time.Hour}
}

func newCertCACmd() *cobra.Command {
	o := &certOptions{}
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "An authority, or one below another",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.check(cmd, o.makeCA) },
	}
	o.flags(cmd, "ca", 3650)
	cmd.Flags().StringVar(&o.ca, "ca", "", "files of the authority above it, without .pem; none: it is a root")
	return cmd
}

func newCertLeafCmd() *cobra.Command {
	o := &certOptions{}
	cmd := &cobra.Command{
		Use:   "leaf NAME...",
		Short: "A certificate for host names and addresses, of SM2 a pair for TLCP",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.check(cmd, func() ([]string, error) { return o.makeLeaf(args) })
		},
	}
	o.flags(cmd, "www", 365)
	cmd.Flags().StringVar(&o.ca, "ca", "ca", "files of the authority, without .pem")
	cmd.Flags().BoolVar(&o.single, "single", false, "of SM2 only the certificate that signs, for TLS 1.3")
	cmd.Flags().StringVar(&o.password, "password-file", "", "file whose first line is the password that keys are encrypted with")
	return cmd
}

func newCertCRLCmd() *cobra.Command {
	o := &certOptions{}
	cmd := &cobra.Command{
		Use:   "crl CERTIFICATE-FILE...",
		Short: "A revocation list with these certificates",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.check(cmd, func() ([]string, error) { return o.makeCRL(args) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ca, "ca", "ca", "files of the authority, without .pem")
	f.StringVar(&o.dir, "dir", ".", "folder of the files")
	f.StringVar(&o.file, "file", "ca", "name of the file, without .crl")
	f.IntVar(&o.days, "days", 30, "days until the next list")
	return cmd
}

// check makes files, and tells which.
func (o *certOptions) check(cmd *cobra.Command, f func() ([]string, error)) error {
	if o.days < 1 {
		return usageError{cmd, errors.New("the lifetime is at least one day")}
	}
	files, err := f()
	if errors.Is(err, issue.ErrKind) {
		return usageError{cmd, err}
	}
	if err != nil {
		return err
	}
	p := newPrinter(cmd.OutOrStdout())
	for _, file := range files {
		p.line("%s", file)
	}
	return nil
}

func (o *certOptions) path(name string) string { return filepath.Join(o.dir, name) }

func (o *certOptions) authority() (*issue.Authority, error) {
	certPEM, err := os.ReadFile(o.path(o.ca + ".pem"))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(o.path(o.ca + ".key"))
	if err != nil {
		return nil, err
	}
	a, err := issue.LoadAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.path(o.ca+".pem"), err)
	}
	return a, nil
}

func (o *certOptions) makeCA() ([]string, error) {
	var parent *issue.Authority
	var err error
	if o.ca != "" {
		if parent, err = o.authority(); err != nil {
			return nil, err
		}
	}
	if o.subject == "" {
		o.subject = "sslo test CA " + o.file
	}
	a, err := issue.NewAuthority(o.request(nil), parent)
	if err != nil {
		return nil, err
	}
	key, err := a.KeyPEM()
	if err != nil {
		return nil, err
	}
	return o.write(file{".pem", issue.PEM(a.Chain), 0o644}, file{".key", key, 0o600})
}

func (o *certOptions) makeLeaf(names []string) ([]string, error) {
	a, err := o.authority()
	if err != nil {
		return nil, err
	}
	password, err := firstLine(o.password)
	if err != nil {
		return nil, err
	}
	leaves := map[string]*issue.Leaf{}
	if o.kind == string(issue.SM2) && !o.single {
		leaves[""], leaves["-enc"], err = a.IssuePair(o.request(names))
	} else {
		leaves[""], err = a.Issue(o.request(names))
	}
	if err != nil {
		return nil, err
	}
	var files []file
	for _, suffix := range []string{"", "-enc"} {
		leaf := leaves[suffix]
		if leaf == nil {
			continue
		}
		key, err := issue.KeyPEM(leaf.Key, password)
		if err != nil {
			return nil, err
		}
		files = append(files, file{suffix + ".pem", issue.PEM(leaf.Chain), 0o644}, file{suffix + ".key", key, 0o600})
	}
	return o.write(files...)
}

func (o *certOptions) makeCRL(certFiles []string) ([]string, error) {
	a, err := o.authority()
	if err != nil {
		return nil, err
	}
	var revoked []*smx509.Certificate
	for _, name := range certFiles {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		chain, err := sm.ParseChainPEM(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		revoked = append(revoked, chain[0])
	}
	list, err := a.Revoke(revoked, time.Duration(o.days)*24*time.Hour)
	if err != nil {
		return nil, err
	}
	name := o.path(o.file + ".crl")
	return []string{name}, os.WriteFile(name, list, 0o644) // the newest list takes the place of the one before
}

// file is one to be written.
type file struct {
	suffix string
	data   []byte
	mode   os.FileMode
}

// write makes all files or none.
func (o *certOptions) write(files ...file) (names []string, err error) {
	for _, f := range files {
		name := o.path(o.file + f.suffix)
		if _, err := os.Lstat(name); err == nil {
			return nil, fmt.Errorf("%s is there already", name)
		}
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, err
	}
	for _, f := range files {
		name := o.path(o.file + f.suffix)
		if err := os.WriteFile(name, f.data, f.mode); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// firstLine of a file is the password; "" for no file.
func firstLine(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for i, c := range data {
		if c == '\n' || c == '\r' {
			data = data[:i]
			break
		}
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s: its first line is empty", name)
	}
	return data, nil
}
