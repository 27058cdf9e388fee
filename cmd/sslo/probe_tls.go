package main

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"github.com/spf13/cobra"

	"sslo/tls/cert"
	"sslo/tls/sm"
	"sslo/tls/survey"
)

func init() { register(newProbeTLSCmd) }

type probeTLSOptions struct {
	survey.Options
	output, ca string
	alpn       []string
	files      cert.SMFiles
	password   string
}

func newProbeTLSCmd() *cobra.Command {
	o := &probeTLSOptions{}
	cmd := &cobra.Command{
		Use:   "probe-tls HOST:PORT",
		Short: "Ask an endpoint what it speaks: TLS, TLS 1.3 with SM suites, TLCP",
		Long: `Ask an endpoint what it speaks. Every family of protocols is tried on a connection of its
own: TLS, TLS 1.3 with SM suites (RFC 8998) and TLCP (GB/T 38636). What was agreed on and the
certificates are printed, and why the others failed. Certificates are verified, but one that
does not verify ends nothing. Exit code 1 when nothing is spoken.`,
		Example: "  sslo probe-tls www.test:443 --ca certs/all.pem\n  sslo probe-tls 192.0.2.10:443 --name www.test --suites -o json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "text", "how to print: text or json")
	f.StringVar(&o.ServerName, "name", "", "name to send and to verify; without it the host")
	f.StringVar(&o.ca, "ca", "", "file with the CA certificates of all kinds; without it those of the system")
	f.StringSliceVar(&o.alpn, "alpn", nil, "application protocols to offer")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Second, "for each try")
	f.BoolVar(&o.Suites, "suites", false, "try each version of TLS and each SM suite alone")
	f.StringVar(&o.files.Cert, "cert", "", "client certificate")
	f.StringVar(&o.files.Key, "key", "", "its key")
	f.StringVar(&o.files.EncCert, "enc-cert", "", "encryption certificate of a pair of SM2")
	f.StringVar(&o.files.EncKey, "enc-key", "", "its key")
	f.StringVar(&o.password, "password-file", "", "file whose first line is the password of encrypted SM2 keys")
	return cmd
}

func (o *probeTLSOptions) run(cmd *cobra.Command, address string) error {
	if o.output != "text" && o.output != "json" {
		return usageError{cmd, fmt.Errorf("output is text or json, not %q", o.output)}
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return usageError{cmd, fmt.Errorf("not HOST:PORT: %w", err)}
	}
	o.Address, o.ALPN = address, o.alpn
	if err := o.load(); err != nil {
		return err
	}
	tries, err := survey.Run(cmd.Context(), o.Options)
	if err != nil {
		return err
	}
	if o.output == "json" {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		err = e.Encode(tries)
	} else {
		showTries(newPrinter(cmd.OutOrStdout()), tries)
	}
	if err != nil {
		return err
	}
	for i := range tries {
		if tries[i].OK {
			return nil
		}
	}
	return errSilent
}

// load reads the files that are named.
func (o *probeTLSOptions) load() error {
	if o.ca != "" {
		data, err := os.ReadFile(o.ca)
		if err != nil {
			return err
		}
		list, err := sm.ParseChainPEM(data)
		if err != nil {
			return fmt.Errorf("%s: %w", o.ca, err)
		}
		o.Roots, o.SMRoots = x509.NewCertPool(), smx509.NewCertPool()
		for _, c := range list {
			o.SMRoots.AddCert(c)
			if std, err := x509.ParseCertificate(c.Raw); err == nil {
				o.Roots.AddCert(std)
			}
		}
	}
	if o.files.Cert == "" {
		return nil
	}
	var err error
	if o.files.Password, err = firstLine(o.password); err != nil {
		return err
	}
	pair, smErr := cert.LoadSM("of --cert", o.files)
	if smErr == nil {
		o.SMPair = &pair
		return nil
	}
	std, err := cert.Load("of --cert", o.files.Cert, o.files.Key)
	if err != nil {
		return smErr
	}
	o.Certificate = &std.Certificate
	return nil
}

func showTries(p *printer, tries []survey.Try) {
	shown := map[string]bool{} // chains
	for i := range tries {
		t := &tries[i]
		name := t.Family
		if t.With != "" {
			name += " with " + t.With
		}
		if !t.OK {
			p.line("%s  %s: %s", p.paint(bold, name), p.paint(dim, "no"), t.Reason)
			if !strings.HasSuffix(t.Error, t.Reason) {
				p.line("  %s", t.Error)
			}
			continue
		}
		p.line("%s  %s", p.paint(bold, name), agreed(p, t))
		if key := fmt.Sprint(t.Chain); shown[key] {
			p.line("  %s", p.paint(dim, "the same certificates as above"))
			continue
		} else {
			shown[key] = true
		}
		for j := range t.Chain {
			c := &t.Chain[j]
			p.line("  %d %s  %s%s, by %s, until %s%s", j, c.Subject, c.Key, before(" ", c.Usage), c.Issuer,
				c.NotAfter.UTC().Format(time.DateOnly), before("  for ", strings.Join(c.Names, ", ")))
		}
	}
}

func agreed(p *printer, t *survey.Try) string {
	parts := []string{p.paint(good, "yes") + ": " + t.Version + " " + t.Suite}
	if t.Group != "" {
		parts = append(parts, t.Group)
	}
	if t.ALPN != "" {
		parts = append(parts, "ALPN "+t.ALPN)
	}
	if t.Asked {
		parts = append(parts, "asks for a client certificate")
	}
	if t.Verified {
		parts = append(parts, "verified")
	} else {
		parts = append(parts, p.paint(warn, "not verified: "+t.VerifyError))
	}
	return strings.Join(append(parts, fmt.Sprintf("%.1f ms", t.Took)), ", ")
}

// before puts a separator before what is there.
func before(sep, text string) string {
	if text == "" {
		return ""
	}
	return sep + text
}
