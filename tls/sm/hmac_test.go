package sm

import (
	"bytes"
	"crypto/hmac"
	"testing"

	"github.com/emmansun/gmsm/sm3"
)

// It is HMAC, whatever the lengths of key and message.
func TestHMAC(t *testing.T) {
	data := make([]byte, 400)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, k := range []int{0, 1, 32, 48, 63, 64, 65, 100} {
		for n := 0; n < len(data); n++ {
			h := hmac.New(sm3.New, data[:k])
			h.Write(data[:n])
			if got := HMAC(data[:k], data[:n/3], data[n/3:n]); !bytes.Equal(got[:], h.Sum(nil)) {
				t.Fatalf("key of %d, message of %d bytes", k, n)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { HMAC(data[:32], data[:50], data[:9]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
