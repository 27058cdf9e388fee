package tlcp

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"testing"

	"github.com/emmansun/gmsm/sm3"

	"sslo/tls/sm"
)

func cbcPair(t testing.TB) (out, in *cbc) {
	t.Helper()
	key, mac := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)
	out, err := newCBC(key, mac)
	if err != nil {
		t.Fatal(err)
	}
	in, _ = newCBC(key, mac)
	return out, in
}

func TestCBCRoundTrip(t *testing.T) {
	out, in := cbcPair(t)
	for n := range 700 {
		want := bytes.Repeat([]byte{byte(n)}, n)
		rec := out.Seal(nil, sm.RecordApplicationData, want)
		_, got, err := in.Open(nil, sm.RecordApplicationData, VersionTLCP11, rec[sm.HeaderSize:])
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

// padded makes a record with any padding, as other stacks send it.
func padded(c *cbc, content []byte, pad int, wrong func(b []byte)) []byte {
	b := append([]byte(nil), content...)
	var head [headSize]byte
	putMACHeader(head[:], c.seq, sm.RecordApplicationData, VersionTLCP11, len(content))
	m := hmac.New(sm3.New, bytes.Repeat([]byte{2}, 32))
	m.Write(head[:])
	m.Write(content)
	b = m.Sum(b)
	for range pad + 1 {
		b = append(b, byte(pad))
	}
	if wrong != nil {
		wrong(b)
	}
	iv := make([]byte, blockSize)
	cipher.NewCBCEncrypter(c.block, iv).CryptBlocks(b, b)
	return append(iv, b...)
}

// The MAC that is computed without looking is HMAC, for each length of padding that there can be.
func TestCBCAnyPadding(t *testing.T) {
	for n := range 200 {
		for pad := (2*blockSize - 1 - (n+macSize)%blockSize) % blockSize; pad < 256; pad += blockSize {
			_, in := cbcPair(t)
			content := bytes.Repeat([]byte{byte(n)}, n)
			_, got, err := in.Open(nil, sm.RecordApplicationData, VersionTLCP11, padded(in, content, pad, nil))
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%d bytes, padding %d: %v", n, pad, err)
			}
		}
	}
}

// All that can be wrong looks the same.
func TestCBCForgeries(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 320-macSize-100)
	for name, wrong := range map[string]func(b []byte){
		"padding":        func(b []byte) { b[len(b)-50] ^= 1 },
		"first padding":  func(b []byte) { b[len(b)-100] ^= 1 },
		"padding length": func(b []byte) { b[len(b)-1]++ },
		"longer than all": func(b []byte) {
			for i := range b {
				b[i] = 255
			}
		},
		"MAC":       func(b []byte) { b[len(b)-101] ^= 1 },
		"first MAC": func(b []byte) { b[len(content)] ^= 1 },
		"content":   func(b []byte) { b[0] ^= 1 },
	} {
		_, in := cbcPair(t)
		_, _, err := in.Open(nil, sm.RecordApplicationData, VersionTLCP11, padded(in, content, 99, wrong))
		if f, ok := err.(*sm.Failure); !ok || f.Alert != sm.AlertBadRecordMAC || f.Err != sm.ErrMAC {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{0, 1, 15, 16, 48, 63, 65} {
		_, in := cbcPair(t)
		if _, _, err := in.Open(nil, sm.RecordAlert, VersionTLCP11, make([]byte, n)); err == nil {
			t.Errorf("%d bytes are a record", n)
		}
	}
}
