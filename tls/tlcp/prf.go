package tlcp

import "sslo/tls/sm"

// Sizes of secrets.
const (
	masterSize   = 48
	finishedSize = 12
	randomSize   = 32
)

// prf is TLS 1.2's, over HMAC-SM3.
func prf(out []byte, secret *sm.MAC, label string, seeds ...[]byte) {
	var buf [128]byte
	seed := append(buf[:0], label...)
	for _, s := range seeds {
		seed = append(seed, s...)
	}
	for a := secret.Sum(seed); ; a = secret.Sum(a[:]) {
		block := secret.Sum(a[:], seed)
		if out = out[copy(out, block[:]):]; len(out) == 0 {
			return
		}
	}
}

func masterSecret(pms, clientRandom, serverRandom []byte) []byte {
	m, mac := make([]byte, masterSize), sm.NewMAC(pms)
	prf(m, &mac, "master secret", clientRandom, serverRandom)
	return m
}

func keyBlock(master *sm.MAC, clientRandom, serverRandom []byte, n int) []byte {
	b := make([]byte, n)
	prf(b, master, "key expansion", serverRandom, clientRandom)
	return b
}

// finished is the verify_data of one side over the hash of the handshake.
func finished(master *sm.MAC, label string, sum []byte) []byte {
	v := make([]byte, finishedSize)
	prf(v, master, label, sum)
	return v
}

const (
	clientFinished = "client finished"
	serverFinished = "server finished"
)
