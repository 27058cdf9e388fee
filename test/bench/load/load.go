// Package load owns the client of the benchmark. It runs as a process of its own in the client's
// namespace and speaks a tiny protocol with its parent: it prints "ready", waits for a line,
// measures, and prints its Result as JSON. TLS 1.3 sessions are never resumed.
package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"
)

var errUsage = errors.New("unknown load test")

// Result of one run; what a test does not measure is zero.
type Result struct {
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Errors   int64   `json:"errors"`
	Error    string  `json:"error,omitempty"` // the first one
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us,omitempty"`
	P99      float64 `json:"p99_us,omitempty"`
	Stall    float64 `json:"stall_ms,omitempty"` // longest time without a byte
}

func (r *Result) fail(err error) {
	if r.Errors++; r.Error == "" {
		r.Error = err.Error()
	}
}

// Options of a run.
type Options struct {
	Test        string
	Target      string // address:port
	Connections int
	Bytes       int64 // a connection
	Rate        int   // requests a second, all connections together
	Duration    time.Duration
}

// Args are the command line of Main.
func (o Options) Args() []string {
	return []string{"-test", o.Test, "-target", o.Target, "-connections", fmt.Sprint(o.Connections),
		"-bytes", fmt.Sprint(o.Bytes), "-rate", fmt.Sprint(o.Rate), "-duration", o.Duration.String()}
}

// Main is the child process.
func Main(args []string) error {
	var o Options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&o.Test, "test", "", "down, up, handshake, requests, latency or idle")
	flags.StringVar(&o.Target, "target", "", "address:port")
	flags.IntVar(&o.Connections, "connections", 1, "")
	flags.Int64Var(&o.Bytes, "bytes", 0, "a connection")
	flags.IntVar(&o.Rate, "rate", 1000, "requests a second")
	flags.DurationVar(&o.Duration, "duration", time.Second, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tests := map[string]func(Options) (*Result, error){
		"down": download, "up": upload, "handshake": handshakes, "requests": requests, "latency": latency, "idle": idle,
	}
	test, ok := tests[o.Test]
	if !ok {
		return fmt.Errorf("%w: %q", errUsage, o.Test)
	}
	debug.SetGCPercent(400)
	result, err := test(o)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, stdin) // idle connections stay until the parent has measured
	return nil
}

var stdin = bufio.NewReader(os.Stdin)

// ready tells the parent that the warm-up is over and waits for its word.
func ready() {
	fmt.Println("ready")
	_, _ = stdin.ReadString('\n')
}

// client is one TLS connection with what HTTP/1.1 needs.
type client struct {
	*tls.Conn
	reader *bufio.Reader
}

// X25519 only, as OpenSSL 3.0 clients offer: every peer then does the same work.
var config = &tls.Config{
	MinVersion:             tls.VersionTLS13,
	ServerName:             "front.test",
	InsecureSkipVerify:     true,
	SessionTicketsDisabled: true,
	CurvePreferences:       []tls.CurveID{tls.X25519},
}

func dial(target string) (*client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d := tls.Dialer{NetDialer: &net.Dialer{KeepAlive: -1}, Config: config}
	conn, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	tc := conn.(*tls.Conn)
	return &client{tc, bufio.NewReaderSize(tc, 4096)}, nil
}

// get makes one request; the caller reads the body.
func (c *client) get(path, extra string) (*http.Response, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: front.test\r\n%s\r\n", path, extra); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return response, nil
}

// fetch makes one request and reads the whole answer.
func (c *client) fetch(path, extra string) error {
	response, err := c.get(path, extra)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && n != response.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return err
}
