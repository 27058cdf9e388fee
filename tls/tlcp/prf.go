package tlcp

import (
	"crypto/hmac"

	"github.com/emmansun/gmsm/sm3"
)

// Sizes of secrets.
const (
	masterSize   = 48
	finishedSize = 12
	randomSize   = 32
)

// prf is TLS 1.2's, over HMAC-SM3.
func prf(out, secret []byte, label string, seeds ...[]byte) {
	seed := []byte(label)
	for _, s := range seeds {
		seed = append(seed, s...)
	}
	h := hmac.New(sm3.New, secret)
	h.Write(seed)
	a := h.Sum(make([]byte, 0, sm3.Size))
	for block := make([]byte, 0, sm3.Size); ; {
		h.Reset()
		h.Write(a)
		h.Write(seed)
		out = out[copy(out, h.Sum(block)):]
		if len(out) == 0 {
			return
		}
		h.Reset()
		h.Write(a)
		a = h.Sum(a[:0])
	}
}

func masterSecret(pms, clientRandom, serverRandom []byte) []byte {
	m := make([]byte, masterSize)
	prf(m, pms, "master secret", clientRandom, serverRandom)
	return m
}

func keyBlock(master, clientRandom, serverRandom []byte, n int) []byte {
	b := make([]byte, n)
	prf(b, master, "key expansion", serverRandom, clientRandom)
	return b
}

// finished is the verify_data of one side over the hash of the handshake.
func finished(master []byte, label string, sum []byte) []byte {
	v := make([]byte, finishedSize)
	prf(v, master, label, sum)
	return v
}

const (
	clientFinished = "client finished"
	serverFinished = "server finished"
)
