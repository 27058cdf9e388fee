package tls13sm

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// rightAlerts are those that a changed byte in a message may be answered with. 20 comes where the change
// makes the ends' keys differ, 51 where only Finished or a signature can tell.
var rightAlerts = map[uint8][]int{
	typeClientHello:         {10, 20, 40, 47, 50, 51, 70, 109, 110, 120, 42},
	typeServerHello:         {10, 20, 40, 47, 50, 51, 70, 109, 110},
	typeEncryptedExtensions: {10, 47, 50, 51, 110},
	typeCertificateRequest:  {10, 47, 50, 51, 109, 110, 116},
	typeCertificate:         {10, 42, 43, 45, 47, 48, 50, 51, 110},
	typeCertificateVerify:   {10, 47, 50, 51},
	typeFinished:            {10, 50, 51},
}

// One changed byte anywhere in the messages ends in an alert that fits, and the other end hears of it.
// Only a length that promises more than there is can make both wait; the deadline ends that.
func TestCorruptedMessages(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, fromServer := range []bool{false, true} {
		for n, size := range messageSizes(t, fromServer) {
			for i := n % step; i < size; i += step {
				corrupt(t, fromServer, n, i)
			}
		}
	}
}

func messageSizes(t *testing.T, fromServer bool) (sizes []int) {
	sc, cc := mutualConfigs(t)
	m := &middle{suite: TLS_SM4_GCM_SM3, edit: func(from bool, n int, msg []byte) []byte {
		if from == fromServer {
			sizes = append(sizes, len(msg))
		}
		return msg
	}}
	server, client := m.pair(t, sc, cc)
	if se, ce := both(server, client); se != nil || ce != nil {
		t.Fatal(se, ce)
	}
	server.NetConn().Close()
	client.NetConn().Close()
	return sizes
}

func corrupt(t *testing.T, fromServer bool, n, i int) {
	t.Helper()
	sc, cc := mutualConfigs(t)
	sc.SessionTicketsDisabled = true
	var changed atomic.Uint32
	m := &middle{suite: TLS_SM4_GCM_SM3, edit: func(from bool, k int, msg []byte) []byte {
		if from == fromServer && k == n && i < len(msg) { // signatures differ in length
			changed.Store(uint32(msg[0]))
			msg[i] ^= 1 << (i % 8)
		}
		return msg
	}}
	server, client := m.pair(t, sc, cc)
	defer server.NetConn().Close()
	defer client.NetConn().Close()
	wait := 5 * time.Second
	if i < 4 {
		wait = 100 * time.Millisecond
	}
	for _, c := range []*Conn{server, client} {
		c.SetDeadline(time.Now().Add(wait))
	}
	se, ce := both(server, client)
	if ce == nil {
		_, ce = client.Read(make([]byte, 1))
	}
	typ := uint8(changed.Load())
	if typ == 0 {
		return
	}
	judge(t, typ, fromServer, i, se, ce)
}

func judge(t *testing.T, typ uint8, fromServer bool, i int, se, ce error) {
	t.Helper()
	own, told := ownAlert(se), peerAlert(ce)
	if own < 0 {
		own, told = ownAlert(ce), peerAlert(se)
	}
	var ne net.Error
	waited := errors.As(se, &ne) && ne.Timeout() || errors.As(ce, &ne) && ne.Timeout()
	switch {
	case own < 0 && waited && i > 0 && i < 4:
	case !slices.Contains(rightAlerts[typ], own):
		t.Errorf("byte %d of message %d (server's: %v): alert %d: server %v, client %v", i, typ, fromServer, own, se, ce)
	case told != own && own != 20 && !(ownAlert(se) >= 0 && ownAlert(ce) >= 0):
		t.Errorf("byte %d of message %d (server's: %v): alert %d, but told %d: server %v, client %v", i, typ, fromServer, own, told, se, ce)
	}
}
