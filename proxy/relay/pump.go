package relay

import (
	"errors"
	"io"
	"sync/atomic"
)

// End says how one direction ended.
type End struct {
	Err  error // nil: the source ended in order; ErrTruncated: it ended without saying so
	Sink bool  // Err is of the writing side
}

// Pump carries one direction until its source ends or either side fails. It does not end the sink's
// direction: what the end means there is for the caller to decide. bytes counts what was carried.
func Pump(dst, src Stream, bufs *Buffers, bytes *atomic.Uint64) End {
	defer src.StopReading()
	for {
		b, err := src.Read()
		if b != nil {
			werr := dst.Write(b.B[:b.N])
			bytes.Add(uint64(b.N))
			bufs.Release(b)
			if werr != nil {
				return End{werr, true}
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return End{}
		default:
			return End{Err: err}
		}
	}
}
