package hello

import "errors"

// Source is a connection whose first bytes can be looked at and stay.
type Source interface {
	// Buffered is all that was received and not consumed yet.
	Buffered() []byte
	// Fill receives more.
	Fill() error
}

// Read waits for a whole ClientHello and leaves it in the source. The caller sets the deadline.
func Read(src Source) (*Hello, error) {
	var s Scanner
	for {
		if b := src.Buffered(); len(b) > 0 {
			if h, err := s.Scan(b); !errors.Is(err, ErrIncomplete) {
				return h, err
			}
		}
		if err := src.Fill(); err != nil {
			return nil, err
		}
	}
}
