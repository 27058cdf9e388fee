package load

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// handshakes makes connections with one request each, o.Connections at a time.
func handshakes(o Options) (*Result, error) {
	o.burst(min(o.Duration, time.Second))
	ready()
	return o.burst(o.Duration), nil
}

func (o Options) burst(d time.Duration) *Result {
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		result Result
		start  = time.Now()
	)
	for range o.Connections {
		wg.Go(func() {
			for time.Since(start) < d {
				err := once(o.Target)
				mu.Lock()
				result.Requests++
				if err != nil {
					result.fail(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	result.Seconds = time.Since(start).Seconds()
	return &result
}

func once(target string) error {
	c, err := dial(target)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.fetch("/64", "Connection: close\r\n")
}

// requests makes requests over kept connections, each as fast as it is answered.
func requests(o Options) (*Result, error) {
	clients, err := o.dialAll()
	if err != nil {
		return nil, err
	}
	if _, err := o.flood(clients, min(o.Duration, time.Second)); err != nil {
		return nil, err
	}
	ready()
	return o.flood(clients, o.Duration)
}

func (o Options) flood(clients []*client, d time.Duration) (*Result, error) {
	var (
		wg    sync.WaitGroup
		done  = make([]int64, len(clients))
		errs  = make([]error, len(clients))
		start = time.Now()
	)
	for i, c := range clients {
		wg.Go(func() {
			for ; errs[i] == nil && time.Since(start) < d; done[i]++ {
				errs[i] = c.fetch("/1k", "")
			}
		})
	}
	wg.Wait()
	result := Result{Seconds: time.Since(start).Seconds()}
	for _, n := range done {
		result.Requests += n
	}
	return &result, errors.Join(errs...)
}

func (o Options) dialAll() ([]*client, error) {
	clients := make([]*client, o.Connections)
	for i := range clients {
		c, err := dial(o.Target)
		if err != nil {
			return nil, err
		}
		clients[i] = c
	}
	return clients, nil
}

// latency sends o.Rate requests a second over kept connections and notes how long each took.
func latency(o Options) (*Result, error) {
	clients, err := o.dialAll()
	if err != nil {
		return nil, err
	}
	if _, err := o.paced(clients, min(o.Duration, time.Second)); err != nil {
		return nil, err
	}
	ready()
	start := time.Now()
	took, err := o.paced(clients, o.Duration)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / 1e3 }
	return &Result{Requests: int64(len(took)), Seconds: time.Since(start).Seconds(), P50: at(.5), P99: at(.99)}, nil
}

func (o Options) paced(clients []*client, d time.Duration) ([]time.Duration, error) {
	var (
		wg    sync.WaitGroup
		each  = make([][]time.Duration, len(clients))
		errs  = make([]error, len(clients))
		step  = time.Second * time.Duration(len(clients)) / time.Duration(o.Rate)
		start = time.Now()
	)
	for i, c := range clients {
		wg.Go(func() {
			next := start.Add(step * time.Duration(i) / time.Duration(len(clients)))
			for ; next.Sub(start) < d; next = next.Add(step) {
				time.Sleep(time.Until(next))
				sent := time.Now()
				if errs[i] = c.fetch("/1k", ""); errs[i] != nil {
					return
				}
				each[i] = append(each[i], time.Since(sent))
			}
		})
	}
	wg.Wait()
	return slices.Concat(each...), errors.Join(errs...)
}

// held keeps idle connections reachable until the process ends.
var held []*client

// idle opens connections, makes one request on each, and leaves them open.
func idle(o Options) (*Result, error) {
	ready()
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		result Result
		start  = time.Now()
		gate   = make(chan struct{}, 32)
	)
	for range o.Connections {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			c, err := dial(o.Target)
			if err == nil {
				err = c.fetch("/64", "")
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				result.fail(err)
				return
			}
			result.Requests++
			held = append(held, c)
		})
	}
	wg.Wait()
	time.Sleep(o.Duration)
	result.Seconds = time.Since(start).Seconds()
	return &result, nil
}
