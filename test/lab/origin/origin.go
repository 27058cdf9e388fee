package origin

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Report is what /upload answers.
type Report struct {
	Bytes   int64   `json:"bytes"`
	SHA256  string  `json:"sha256"`
	StallMS float64 `json:"stall_ms"` // longest time between two reads of the body
	StallAt int64   `json:"stall_at"` // when it began, Unix microseconds
	Gaps    []Gap   `json:"gaps"`
}

// Server answers on a TLS listener until it is closed.
type Server struct {
	http *http.Server
}

// Serve starts an origin named name on l. Certificates are chosen by SNI; the first is the default.
func Serve(l net.Listener, name string, certs ...tls.Certificate) *Server {
	s := &Server{&http.Server{Handler: Handler(name), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}}
	cfg := &tls.Config{Certificates: certs, NextProtos: []string{"http/1.1"}}
	go s.http.Serve(tls.NewListener(l, cfg)) // ends with Close
	return s
}

// Close stops it and breaks its connections.
func (s *Server) Close() error { return s.http.Close() }

// Handler is the origin without its TLS.
//
//	/               a line with the server's name, the peer it saw and the SNI
//	/bytes/N        N bytes of Stream; ?rate=B paces them at B bytes a second
//	/upload         reads the body; answers a Report
//	/slow?d=1s      answers after d
//	/drip?n=10&d=1s n lines, one each d
//	/echo           the request's body
//	/headers        the request's line and headers as JSON
//	/truncated/N    promises N bytes, sends half and resets the connection
func Handler(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { hello(w, r, name) })
	mux.HandleFunc("/bytes/{n}", download)
	mux.HandleFunc("/upload", upload)
	mux.HandleFunc("/slow", slow)
	mux.HandleFunc("/drip", drip)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/headers", headers)
	mux.HandleFunc("/truncated/{n}", truncated)
	return mux
}

func hello(w http.ResponseWriter, r *http.Request, name string) {
	sni := ""
	if r.TLS != nil {
		sni = r.TLS.ServerName
	}
	w.Header().Set("X-Server", name)
	fmt.Fprintf(w, "hello from %s to %s sni=%q\n", name, r.RemoteAddr, sni)
}

func download(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n < 0 {
		http.Error(w, "bad length", http.StatusBadRequest)
		return
	}
	rate, _ := strconv.ParseInt(r.URL.Query().Get("rate"), 10, 64)
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	io.CopyBuffer(flusher{w, rate > 0}, Paced(Stream(n), rate), make([]byte, blockSize)) // the client may go
}

// flusher sends paced pieces at once instead of collecting them in the server's buffer.
type flusher struct {
	w     http.ResponseWriter
	flush bool
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if f.flush && err == nil {
		err = http.NewResponseController(f.w).Flush()
	}
	return n, err
}

func upload(w http.ResponseWriter, r *http.Request) {
	m := NewMeter()
	if _, err := io.CopyBuffer(m, struct{ io.Reader }{r.Body}, make([]byte, blockSize)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	json.NewEncoder(w).Encode(Report{m.Bytes, m.Sum(), float64(m.Stall.Microseconds()) / 1000, m.StallAt.UnixMicro(), m.Gaps})
}

func slow(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("d"))
	if err != nil {
		d = time.Second
	}
	select {
	case <-time.After(d):
		fmt.Fprintln(w, "slow")
	case <-r.Context().Done():
	}
}

func drip(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	d, err2 := time.ParseDuration(r.URL.Query().Get("d"))
	if errors.Join(err, err2) != nil {
		n, d = 10, 100*time.Millisecond
	}
	for i := range n {
		fmt.Fprintln(w, i)
		http.NewResponseController(w).Flush()
		time.Sleep(d)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	io.Copy(w, r.Body)
}

func headers(w http.ResponseWriter, r *http.Request) {
	json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "uri": r.RequestURI, "host": r.Host, "peer": r.RemoteAddr, "headers": r.Header,
	})
}

// truncated breaks off in the middle with a RST, which no proxy may turn into a clean end.
func truncated(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		http.Error(w, "bad length", http.StatusBadRequest)
		return
	}
	c, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer c.Close()
	fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n)
	io.Copy(buf, Stream(int64(n/2)))
	buf.Flush()
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
		t.Close()
	}
}
