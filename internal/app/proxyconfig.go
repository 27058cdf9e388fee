package app

import (
	"sslo/config"
	"sslo/policy"
	"sslo/proxy"
	"sslo/proxy/pool"
	"sslo/tls/cert"
)

// proxyConfig is what a configuration means to the proxy plane.
func proxyConfig(c *config.Config) proxy.Config {
	nics, certs := map[string]string{}, certificates(c)
	for _, l := range c.Links {
		nics[l.Name] = l.NIC
	}
	out := proxy.Config{Descriptors: c.System.Limits.Descriptors, BufferMemory: int64(c.System.Limits.BufferMemory),
		Handshakes: c.System.Limits.Handshakes, HandshakesPerClient: c.System.Limits.HandshakesPerClient}
	for _, p := range c.ServerPools {
		out.ServerPools = append(out.ServerPools, serverPool(p, certs))
	}
	for _, v := range c.VirtualServers {
		out.VirtualServers = append(out.VirtualServers, virtualServer(v, nics, certs))
	}
	return out
}

func serverPool(c *config.ServerPool, certs map[string]*config.Certificate) pool.Config {
	p := pool.Config{Name: c.Name}
	for _, m := range c.Members {
		p.Members = append(p.Members, pool.Member{Name: m.Address.String(), Address: m.Address})
	}
	if c.TLS.Enabled {
		p.TLS = &pool.TLS{
			ClientOptions: clientOptions(&c.TLS, certs),
			SNI:           map[config.SNI]pool.SNI{config.SNIOriginal: pool.SNIOriginal, config.SNIConfigured: pool.SNIConfigured}[c.TLS.SNI],
		}
	}
	return p
}

func virtualServer(c *config.VirtualServer, nics map[string]string, certs map[string]*config.Certificate) proxy.VirtualServer {
	v := proxy.VirtualServer{
		Name: c.Name, Type: proxy.HTTPS, Listen: c.Listen, PlaintextPort: uint16(c.PlaintextPort),
		TLS:   serverOptions(c, certs),
		Chain: c.Chain, ServerPool: c.ServerPool,
		Script: c.Script.Program, ScriptRejects: c.Script.OnError == config.ScriptReject,
		Limits:   proxy.Limits(c.Limits),
		Timeouts: proxy.Timeouts(c.Timeouts),
	}
	if c.Type == config.TypeTLS {
		v.Type = proxy.TLS
	}
	for _, name := range c.Links {
		v.Links = append(v.Links, proxy.Link{Name: name, NIC: nics[name]})
	}
	for _, name := range c.Certificates {
		if c := certs[name]; c.SM.Certificate == nil {
			v.Certificates = append(v.Certificates, cert.Pair{Name: name, Certificate: c.TLS})
		}
	}
	for i := range c.Rules {
		v.Rules = append(v.Rules, rule(&c.Rules[i]))
	}
	return v
}

func rule(c *config.Rule) policy.Rule {
	r := policy.Rule{
		Name: c.Name, Match: c.Match, Action: c.Action, Chain: c.Chain, ServerPool: c.ServerPool, OnFailure: c.OnFailure,
		When: policy.Conditions{Source: c.When.Source, Destination: c.When.Destination, Port: c.When.Port,
			Protocol: c.When.Protocol, Link: c.When.Link, SNI: c.When.SNI, ALPN: c.When.ALPN},
	}
	for _, v := range c.When.TLSVersion {
		r.When.TLSVersion = append(r.When.TLSVersion, uint16(v))
	}
	return r
}
