package app

import (
	"sslo/config"
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
	p := pool.Config{Name: c.Name, Method: c.Method, SlowStart: c.SlowStart}
	for _, m := range c.Members {
		p.Members = append(p.Members, pool.Member{Name: m.Address.String(), Address: m.Address, Weight: m.Weight})
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
	order := c.Scheduling()
	v := proxy.VirtualServer{
		Name: c.Name, Type: proxy.HTTPS, Listen: c.Listen, PlaintextPort: uint16(c.PlaintextPort),
		TLS:   serverOptions(c, certs),
		Chain: c.Chain, ServerPool: c.ServerPool, Rules: order.Rules,
		Script: order.Script, ScriptRejects: order.ScriptRejects,
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
	return v
}
