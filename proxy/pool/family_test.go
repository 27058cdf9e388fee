package pool

import (
	"net"
	"testing"

	"sslo/tls/cert/certtest"
	"sslo/tls/term"
	"sslo/tls/tlcp"
)

// A server that speaks TLCP alone is reached by the first connection, and the next ones know.
func TestServersFamilyIsFound(t *testing.T) {
	ca, smCA := certtest.NewCA(t), certtest.NewSMCA(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	cfg := &tlcp.Config{Certificates: []*tlcp.Certificate{smCA.Issue(t, "o.test")}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				s := tlcp.Server(c, cfg)
				if s.Handshake() == nil {
					s.Read(make([]byte, 1))
				}
			}()
		}
	}()
	p := New(Config{Name: "web", Members: []Member{{Address: l.Addr().(*net.TCPAddr).AddrPort()}}, TLS: &TLS{ClientOptions: term.ClientOptions{
		CA: ca.Pool(), ServerName: "o.test", Families: []term.Family{term.TLS, term.TLS13SM, term.TLCP}, SM: &term.SMClient{CA: smCA.Pool()}}}})
	for range 2 {
		s, err := p.Connect(request())
		if err != nil {
			t.Fatal(err)
		}
		if s.State.Family != term.TLCP {
			t.Errorf("%+v", s.State)
		}
		s.Reset()
		s.Done()
	}
	if st := p.Stats(always).Members[0]; st.HandshakeFailed != 0 || st.Total != 2 {
		t.Errorf("%+v", st)
	}
	same := *p.now.Load().cfg.TLS
	again := same
	again.SM = &term.SMClient{CA: smCA.Pool()}
	if !sameTLS(&same, &again) {
		t.Error("equal options are not the same")
	}
	again.SM = &term.SMClient{CA: certtest.NewSMCA(t).Pool()}
	if sameTLS(&same, &again) {
		t.Error("other CAs are the same")
	}
}
