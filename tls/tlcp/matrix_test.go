package tlcp

import (
	"fmt"
	"testing"
)

// Every suite, with and without client certificates, in a full handshake and resumed either way, however the
// messages are framed.
func TestMatrix(t *testing.T) {
	for _, s := range suites {
		for _, auth := range []ClientAuthType{NoClientCert, RequireAndVerifyClientCert} {
			for _, how := range []string{"full", "id", "ticket"} {
				for name, sh := range shapes {
					t.Run(fmt.Sprintf("%s/%d/%s/%s", s.name, auth, how, name), func(t *testing.T) {
						client, server := configs(t)
						client.CipherSuites, server.ClientAuth = []uint16{s.id}, auth
						resumeBy(client, server, how)
						resumed := how != "full"
						first(t, client, server, resumed, sh)
						c, sc := shaped(t, sh)
						r := mustShake(t, c, sc, client, server)
						checkResumed(t, r, resumed, s.ecdhe || auth != NoClientCert)
						echo(t, r, 40_000/(1+39*sh.segment))
					})
				}
			}
		}
	}
}

func resumeBy(client, server *Config, how string) {
	if how == "full" {
		return
	}
	client.ClientSessionCache, server.SessionCache = NewLRUClientSessionCache(4), NewLRUServerSessionCache(4)
	client.OfferTickets = how == "ticket"
}

// first makes the session that is resumed.
func first(t *testing.T, client, server *Config, resumed bool, sh shape) {
	t.Helper()
	if !resumed {
		return
	}
	c, sc := shaped(t, sh)
	if r := mustShake(t, c, sc, client, server); r.client.ConnectionState().DidResume {
		t.Fatal("the first handshake resumed")
	}
}

func checkResumed(t *testing.T, r result, resumed, mutual bool) {
	t.Helper()
	c, s := r.client.ConnectionState(), r.server.ConnectionState()
	if c.DidResume != resumed || s.DidResume != resumed {
		t.Fatalf("resumed: client %t, server %t, want %t", c.DidResume, s.DidResume, resumed)
	}
	if (len(s.PeerCertificates) > 0) != mutual || len(c.PeerCertificates) == 0 || len(c.VerifiedChains) == 0 {
		t.Errorf("%d certificates of the client, %d of the server in %d chains", len(s.PeerCertificates), len(c.PeerCertificates), len(c.VerifiedChains))
	}
}

func TestResumptionIsRefused(t *testing.T) {
	type change func(client, server *Config)
	for name, ch := range map[string]change{
		"other name":           func(c, _ *Config) { c.ServerName = "tlcp.test" },
		"suite gone":           func(_, s *Config) { s.CipherSuites = []uint16{ECC_SM4_CBC_SM3} },
		"certificate required": func(_, s *Config) { s.ClientAuth = RequireAndVerifyClientCert },
		"too old":              func(_, s *Config) { s.SessionLifetime = 1 },
	} {
		for _, how := range []string{"id", "ticket"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				client, server := configs(t)
				resumeBy(client, server, how)
				first(t, client, server, true, shape{})
				again, s2 := client.Clone(), server.Clone()
				if ch(again, s2); again.ServerName != client.ServerName {
					s, _ := client.ClientSessionCache.Get(client.ServerName)
					moved := *s
					moved.serverName = again.ServerName // what a client that lies would do
					again.ClientSessionCache.Put(again.ServerName, &moved)
				}
				c, sc := tcpPair(t)
				r := mustShake(t, c, sc, again, s2)
				checkResumed(t, r, false, s2.ClientAuth != NoClientCert)
				echo(t, r, 100)
			})
		}
	}
}

func TestTicketKeys(t *testing.T) {
	client, server := configs(t)
	resumeBy(client, server, "ticket")
	server.SessionCache = nil
	old, now := [32]byte{1}, [32]byte{2}
	server.SetSessionTicketKeys([][32]byte{old})
	first(t, client, server, true, shape{})
	before, _ := client.ClientSessionCache.Get("localhost")

	server.SetSessionTicketKeys([][32]byte{now, old})
	c, sc := tcpPair(t)
	checkResumed(t, mustShake(t, c, sc, client, server), true, false)
	after, _ := client.ClientSessionCache.Get("localhost")
	if string(after.ticket) == string(before.ticket) || !after.created.Equal(before.created) {
		t.Error("a ticket under the old key must be replaced, and stay as old as it is")
	}

	server.SetSessionTicketKeys([][32]byte{now})
	c, sc = tcpPair(t)
	checkResumed(t, mustShake(t, c, sc, client, server), true, false)

	server.SetSessionTicketKeys([][32]byte{{3}})
	c, sc = tcpPair(t)
	checkResumed(t, mustShake(t, c, sc, client, server), false, false)
}

func TestCachesAreBounded(t *testing.T) {
	c := NewLRUServerSessionCache(3)
	for i := range byte(10) {
		c.Put([]byte{i}, &Session{})
		c.Get([]byte{0})
	}
	if _, ok := c.Get([]byte{0}); !ok {
		t.Error("the one in use went")
	}
	if _, ok := c.Get([]byte{5}); ok {
		t.Error("an old one stayed")
	}
	if n := c.(serverCache).order.Len(); n != 3 {
		t.Errorf("%d sessions in a cache of 3", n)
	}
}
