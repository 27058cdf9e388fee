package sm

import (
	"bytes"
	"crypto/cipher"
	"encoding/hex"
	"testing"
)

// Both AEADs must seal and open in place as they do elsewhere.
func TestAEADInPlace(t *testing.T) {
	for name, make16 := range map[string]func([]byte) (cipher.AEAD, error){"GCM": NewGCM, "CCM": NewCCM} {
		a, err := make16(make([]byte, KeySize))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 15, 16, 17, 1000, MaxPlain + 1, MaxRecord + 1} {
			plain := bytes.Repeat([]byte{7}, n)
			nonce, ad := make([]byte, NonceSize), []byte("ad")
			want := a.Seal(nil, nonce, plain, ad)
			buf := append(make([]byte, 0, n+TagSize), plain...)
			got := a.Seal(buf[:0], nonce, buf, ad)
			if !bytes.Equal(got, want) {
				t.Errorf("%s of %d bytes differs in place", name, n)
			}
			if back, err := a.Open(got[:0], nonce, got, ad); err != nil || !bytes.Equal(back, plain) {
				t.Errorf("%s of %d bytes does not open in place: %v", name, n, err)
			}
		}
	}
}

// The known answers of RFC 8998, appendix A.
func TestAEADKnownAnswers(t *testing.T) {
	un := func(s string) []byte { b, _ := hex.DecodeString(s); return b }
	key, nonce := un("0123456789abcdeffedcba9876543210"), un("00001234567800000000abcd")
	ad := un("feedfacedeadbeeffeedfacedeadbeefabaddad2")
	plain := un("aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccddddddddddddddddeeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa")
	for name, x := range map[string]struct {
		make func([]byte) (cipher.AEAD, error)
		want string
	}{
		"GCM": {NewGCM, "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d83de3541e4c2b58177e065a9bf7b62ec"},
		"CCM": {NewCCM, "48af93501fa62adbcd414cce6034d895dda1bf8f132f042098661572e7483094fd12e518ce062c98acee28d95df4416bed31a2f04476c18bb40c84a74b97dc5b16842d4fa186f56ab33256971fa110f4"},
	} {
		a, _ := x.make(key)
		if got := hex.EncodeToString(a.Seal(nil, nonce, plain, ad)); got != x.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
