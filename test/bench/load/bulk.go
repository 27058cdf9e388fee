package load

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

func download(o Options) (*Result, error) { return bulk(o, downloadOne) }
func upload(o Options) (*Result, error)   { return bulk(o, uploadOne) }

// bulk runs one transfer on each connection, all at once.
func bulk(o Options, one func(Options, int) (int64, time.Duration, error)) (*Result, error) {
	ready()
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		result Result
		start  = time.Now()
	)
	for i := range o.Connections {
		wg.Go(func() {
			n, stall, err := one(o, i)
			mu.Lock()
			defer mu.Unlock()
			result.Requests++
			result.Bytes += n
			result.Stall = max(result.Stall, float64(stall)/1e6)
			if err != nil {
				result.fail(err)
			}
		})
	}
	wg.Wait()
	result.Seconds = time.Since(start).Seconds()
	return &result, nil
}

func downloadOne(o Options, _ int) (int64, time.Duration, error) {
	c, err := dial(o.Target)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	response, err := c.get(fmt.Sprintf("/zero%d", o.Bytes), "")
	if err != nil {
		return 0, 0, err
	}
	watch := gaps{last: time.Now()}
	n, err := io.CopyBuffer(&watch, onlyReader{response.Body}, make([]byte, 64<<10))
	if err == nil && n != o.Bytes {
		err = io.ErrUnexpectedEOF
	}
	return n, watch.longest, err
}

func uploadOne(o Options, i int) (int64, time.Duration, error) {
	c, err := dial(o.Target)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	fmt.Fprintf(c, "PUT /up/%d HTTP/1.1\r\nHost: front.test\r\nContent-Length: %d\r\n\r\n", i, o.Bytes)
	watch := gaps{last: time.Now()}
	zeros := make([]byte, 256<<10)
	var n int64
	for n < o.Bytes {
		k, err := c.Write(zeros[:min(int64(len(zeros)), o.Bytes-n)])
		_, _ = watch.Write(nil)
		if n += int64(k); err != nil {
			return n, watch.longest, err
		}
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("PUT: %s", response.Status)
	}
	return n, watch.longest, err
}

// gaps notes the longest time between two writes to it.
type gaps struct {
	last    time.Time
	longest time.Duration
}

func (g *gaps) Write(p []byte) (int, error) {
	now := time.Now()
	g.longest = max(g.longest, now.Sub(g.last))
	g.last = now
	return len(p), nil
}

type onlyReader struct{ io.Reader }
