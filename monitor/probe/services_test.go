package probe

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// want probes once: "" must pass, anything else is what the failure says.
func want(t *testing.T, s Spec, reason string) {
	t.Helper()
	p, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := probeFor(p, 2*time.Second)
	if r.OK != (reason == "") || !strings.Contains(r.Reason, reason) || r.Latency <= 0 {
		t.Errorf("%s: %+v, want %q", s, r, reason)
	}
}

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s at %s: all is well", r.Method, r.Header.Get("X-Who"), r.Host)
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/health", http.StatusFound) })
	mux.HandleFunc("/sick", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	get := func(path string, change func(*HTTPSpec)) HTTPSpec {
		s := HTTPSpec{Address: netip.MustParseAddrPort(plain.Listener.Addr().String()),
			Request: HTTPRequest{Method: "GET", Path: path, Status: []StatusRange{{200, 299}}}}
		if change != nil {
			change(&s)
		}
		return s
	}
	encrypted := func(tls TLSSpec) HTTPSpec {
		return get("/health", func(s *HTTPSpec) {
			s.Address, s.TLS = netip.MustParseAddrPort(secure.Listener.Addr().String()), &tls
		})
	}
	want(t, get("/health", nil), "")
	want(t, get("/health", func(s *HTTPSpec) {
		s.Request.Body = "for me at health.test: all is w[a-f]ll"
		s.Request.Host = "health.test"
		s.Request.Headers = []string{"X-Who: me"}
	}), "")
	want(t, get("/health", func(s *HTTPSpec) { s.Request.Body = "unwell" }), `its body does not match "unwell"`)
	want(t, get("/sick", nil), "status 503 Service Unavailable")
	want(t, get("/moved", nil), "status 302 Found")
	want(t, get("/moved", func(s *HTTPSpec) { s.Request.Status = []StatusRange{{200, 200}, {301, 308}} }), "")
	want(t, get("/slow", nil), "no answer in time")
	want(t, get("/health", func(s *HTTPSpec) { s.Request.Method = "HEAD" }), "")
	want(t, encrypted(TLSSpec{}), "")
	want(t, encrypted(TLSSpec{Verify: true, CA: ca, ServerName: "example.com"}), "")
	want(t, encrypted(TLSSpec{Verify: true, CA: ca, ServerName: "other.test"}), "not other.test")
	want(t, encrypted(TLSSpec{Verify: true, ServerName: "example.com"}), "unknown authority")
	want(t, get("/health", func(s *HTTPSpec) { s.TLS = &TLSSpec{} }), "TLS: ")
	closed, _ := net.Listen("tcp", "127.0.0.1:0")
	closed.Close()
	want(t, get("/", func(s *HTTPSpec) { s.Address = netip.MustParseAddrPort(closed.Addr().String()) }), "connection refused")
}

// talk answers datagrams until the test ends.
func talk(t *testing.T, answer func(question []byte) [][]byte) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, a := range answer(buf[:n]) {
				c.WriteTo(a, from)
			}
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

func TestUDP(t *testing.T) {
	at := talk(t, func(q []byte) [][]byte { return [][]byte{append([]byte("echo "), q...)} })
	want(t, UDPSpec{Address: at, Send: "ping"}, "")
	want(t, UDPSpec{Address: at, Send: "ping", Expect: "^echo ping$"}, "")
	want(t, UDPSpec{Address: at, Send: "ping", Expect: "pong"}, `does not match "pong"`)
	want(t, UDPSpec{Address: talk(t, func([]byte) [][]byte { return nil }), Send: "ping"}, "no answer in time")
	c, _ := net.ListenPacket("udp", "127.0.0.1:0")
	c.Close()
	want(t, UDPSpec{Address: netip.MustParseAddrPort(c.LocalAddr().String()), Send: "x"}, "connection refused")
}

func TestDNS(t *testing.T) {
	at := talk(t, func(q []byte) [][]byte {
		var d layers.DNS
		if d.DecodeFromBytes(q, gopacket.NilDecodeFeedback) != nil || len(d.Questions) != 1 {
			return nil
		}
		name := string(d.Questions[0].Name)
		d.QR, d.RA = true, true
		if name != "www.example.test" {
			d.ResponseCode = layers.DNSResponseCodeNXDomain
		} else if d.Questions[0].Type == layers.DNSTypeA {
			d.Answers = []layers.DNSResourceRecord{{Name: []byte(name), Type: layers.DNSTypeA, Class: layers.DNSClassIN, TTL: 1, IP: net.IPv4(192, 0, 2, 7)}}
		}
		encode := func() []byte {
			buf := gopacket.NewSerializeBuffer()
			d.SerializeTo(buf, gopacket.SerializeOptions{FixLengths: true})
			return append([]byte(nil), buf.Bytes()...)
		}
		right := encode()
		d.ID++
		return [][]byte{encode(), right} // the first is an answer to another question
	})
	want(t, DNSSpec{Address: at, Name: "www.example.test", Type: DNSA}, "")
	want(t, DNSSpec{Address: at, Name: "www.example.test.", Type: DNSA, Expect: `^192\.0\.2\.7$`}, "")
	want(t, DNSSpec{Address: at, Name: "www.example.test", Type: DNSA, Expect: "198"}, `no answer matches "198": 192.0.2.7`)
	want(t, DNSSpec{Address: at, Name: "www.example.test", Type: DNSAAAA, Expect: ":"}, "no answer matches")
	want(t, DNSSpec{Address: at, Name: "no.example.test", Type: DNSA}, "answered Non-Existent Domain")
	want(t, DNSSpec{Address: talk(t, func([]byte) [][]byte { return [][]byte{[]byte("rubbish")} }), Name: "x.test", Type: DNSA}, "no DNS message")
}

func TestExec(t *testing.T) {
	sh := func(script string) ExecSpec {
		return NewExecSpec([]string{"/bin/sh", "-c", script}, "web/10.0.0.1:443", netip.MustParseAddrPort("10.0.0.1:443"))
	}
	want(t, sh("true"), "")
	want(t, sh(`test "$SSLO_TARGET $SSLO_ADDRESS $SSLO_PORT" = "web/10.0.0.1:443 10.0.0.1 443"`), "")
	want(t, sh("echo too hot >&2; echo and more; exit 3"), "exit status 3: too hot")
	want(t, NewExecSpec([]string{"/no/such/program"}, "x", netip.AddrPort{}), "no such file")
	want(t, sh("yes"), "no answer in time")
	// What the command started does not outlive it.
	file := filepath.Join(t.TempDir(), "alive")
	want(t, sh(fmt.Sprintf("(sleep 2.5; touch %s) & wait", file)), "no answer in time")
	time.Sleep(time.Second)
	if _, err := os.Stat(file); err == nil {
		t.Error("a child of the command was not killed")
	}
}

func TestExecRemark(t *testing.T) {
	p, _ := NewExecSpec([]string{"/bin/echo", "load 0.3"}, "x", netip.AddrPort{}).Open()
	if r := probeFor(p, time.Second); !r.OK || r.Reason != "load 0.3" {
		t.Errorf("%+v", r)
	}
}
