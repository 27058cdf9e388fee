package plan

import (
	"fmt"
	"slices"
	"strings"

	"sslo/config"
)

// clientTLS is what clients can speak, the preferred first.
func clientTLS(t *config.ClientTLS) string {
	var parts []string
	for _, p := range t.Protocols {
		text := config.Word(p)
		if p == config.ProtocolTLS {
			text = "TLS " + versions(t.MinVersion, t.MaxVersion)
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, ", else ")
	if !slices.ContainsFunc(t.Protocols, func(p config.Protocol) bool { return p != config.ProtocolTLS }) {
		return text
	}
	if len(t.SM.Suites) > 0 {
		text += ", SM suites " + words(t.SM.Suites)
	}
	return text + ", SM " + config.Word(t.SM.Mode)
}

func versions(low, high config.TLSVersion) string {
	if low == high {
		return config.Word(low)
	}
	return config.Word(low) + " to " + config.Word(high)
}

func words[T any](list []T) string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = config.Word(w)
	}
	return strings.Join(out, ", ")
}

func clientCertificates(t *config.ClientTLS) string {
	if t.ClientCertificates == config.ClientCertNone {
		return ""
	}
	text := fmt.Sprintf("certificate %s, verified by %s", config.Word(t.ClientCertificates), t.ClientCA)
	if t.ClientCRL != "" {
		text += ", revoked by " + t.ClientCRL
	}
	return text
}

func serverTLS(t *config.ServerTLS) string {
	if !t.Enabled {
		return "none: plaintext to the servers"
	}
	var parts []string
	switch {
	case t.SNI == config.SNIConfigured:
		parts = append(parts, "SNI "+t.ServerName)
	case t.ServerName != "":
		parts = append(parts, "SNI of the client, else "+t.ServerName)
	default:
		parts = append(parts, "SNI of the client")
	}
	switch {
	case !t.Verify:
		parts = append(parts, "NOT verified")
	case t.CA != "":
		parts = append(parts, "verified by "+t.CA)
	default:
		parts = append(parts, "verified by the CAs of the system")
	}
	if t.CRL != "" {
		parts = append(parts, "revoked by "+t.CRL)
	}
	if len(t.Certificates) > 0 {
		parts = append(parts, "shown "+strings.Join(t.Certificates, ", "))
	}
	return strings.Join(append(parts, serverProtocol(t)), ", ")
}

func serverProtocol(t *config.ServerTLS) string {
	std := "TLS " + config.Word(t.MinVersion) + " or newer"
	if config.Protocol(t.Protocol) == config.ProtocolTLS {
		return std
	}
	text := config.Word(t.Protocol)
	if t.Protocol == config.ServerAuto {
		text = "whichever of " + std + ", tls13-sm, tlcp is spoken"
	}
	if len(t.SM.Suites) > 0 {
		text += ", SM suites " + words(t.SM.Suites)
	}
	for _, odd := range []struct {
		on   bool
		what string
	}{{t.SM.Mode == config.SMTolerant, "tolerant"}, {t.SM.LongKeyExchange, "long key exchange"}, {t.SM.SignRawMessages, "raw messages signed"},
		{t.SM.OmitEncCertificate, "encryption certificate omitted"}} {
		if odd.on {
			text += ", " + odd.what
		}
	}
	return text
}
