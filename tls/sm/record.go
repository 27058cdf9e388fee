package sm

import (
	"errors"
	"sync"
)

// RecordType is the content type of a record.
type RecordType uint8

// Content types.
const (
	RecordChangeCipherSpec RecordType = 20
	RecordAlert            RecordType = 21
	RecordHandshake        RecordType = 22
	RecordApplicationData  RecordType = 23
	RecordSite2Site        RecordType = 80 // GB/T 38636, not spoken here
)

// Limits of records and messages.
const (
	HeaderSize    = 5
	MaxPlain      = 16384
	MaxExpansion  = 2048
	MaxRecord     = HeaderSize + MaxPlain + MaxExpansion
	MaxHandshake  = 128 << 10 // bytes of one handshake message: a chain of large certificates fits
	maxUseless    = 32        // records in a row that carry nothing: Tongsuo sends one before each write
	maxEmptyReads = 100
)

// Errors of the record layer.
var (
	ErrUseless   = errors.New("too many records without content")
	ErrOversized = errors.New("record is too large")
	ErrNotTLS    = errors.New("not a TLS record")
	ErrMAC       = errors.New("record does not authenticate")
	ErrClosed    = errors.New("connection is closed for writing")
)

// Protection protects the records of one direction. It counts them itself.
type Protection interface {
	// Seal appends a whole record, with its header, to dst. plain is no longer than MaxPlain.
	Seal(dst []byte, typ RecordType, plain []byte) []byte
	// Overhead is the most that Seal adds, header included.
	Overhead() int
	// Open gives the content of a record. It writes to dst[:0] when that has room for it, else over body; either
	// is garbage after an error. Errors are Failures.
	Open(dst []byte, typ RecordType, version uint16, body []byte) (RecordType, []byte, error)
}

// Rules are what the protocols' record layers differ in.
type Rules struct {
	Version     uint16 // of the records that are sent in clear
	Expect      uint16 // of the records that are received; 0: any
	TLS13       bool   // every alert but two is fatal, no empty handshake records
	DropCCS     bool   // a change_cipher_spec in clear means nothing
	ForbidEarly bool   // application data is an error (until the handshake is done)
}

// AppendHeader appends the header of a record.
func AppendHeader(dst []byte, typ RecordType, version uint16, n int) []byte {
	return append(dst, byte(typ), byte(version>>8), byte(version), byte(n>>8), byte(n))
}

// Buffers of records: of one, and of a long write.
const burst = 4

var (
	single = sync.Pool{New: func() any { b := make([]byte, MaxRecord); return &b }}
	bursts = sync.Pool{New: func() any { b := make([]byte, 0, burst*(MaxPlain+256)); return &b }}
)
