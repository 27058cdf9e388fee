// Package client speaks the admin API over the daemon's unix socket. It owns the transport and turns
// problem documents into errors; what to do with the answers is its caller's business.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sslo/admin/api"
)

// DefaultSocket is where the daemon listens unless configured otherwise.
const DefaultSocket = "/run/sslo/admin.sock"

// ErrNotRunning means that nobody listens on the socket.
var ErrNotRunning = errors.New("daemon is not running")

// Client is a client of one daemon.
type Client struct {
	http   *http.Client
	socket string
}

// New returns a client of the daemon that listens on socket.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{
		socket: socket,
		http:   &http.Client{Transport: &http.Transport{DialContext: dial, ReadBufferSize: 256 << 10}},
	}
}

// Get decodes the answer to GET path into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.call(ctx, http.MethodGet, path, out)
}

// Raw returns the body of the answer to GET path as it comes.
func (c *Client) Raw(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// SetDevice asks for an operator's action: enable, disable or bypass.
func (c *Client) SetDevice(ctx context.Context, name, action string) (api.Device, error) {
	var device api.Device
	err := c.call(ctx, http.MethodPost, "/v1/devices/"+url.PathEscape(name)+"/"+action, &device)
	return device, err
}

// KillSession resets the connection that the session belongs to.
func (c *Client) KillSession(ctx context.Context, id api.ID) error {
	return c.call(ctx, http.MethodDelete, "/v1/sessions/"+id.String(), nil)
}

// Reload asks the daemon to read its configuration again.
func (c *Client) Reload(ctx context.Context) (api.Reload, error) {
	var result api.Reload
	err := c.call(ctx, http.MethodPost, "/v1/reload", &result)
	return result, err
}

func (c *Client) call(ctx context.Context, method, path string, out any) error {
	resp, err := c.do(ctx, method, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("answer to %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://sslo"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp, nil
}

// explain says what a failed dial means to an operator.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, errNoSocket):
		return fmt.Errorf("%w: no socket at %s", ErrNotRunning, c.socket)
	case errors.Is(err, errRefused):
		return fmt.Errorf("%w: nobody listens on %s", ErrNotRunning, c.socket)
	case errors.Is(err, errDenied):
		return fmt.Errorf("not allowed to use %s: run as root or as a member of its group", c.socket)
	}
	return fmt.Errorf("admin API: %w", err)
}

func problemOf(resp *http.Response) error {
	problem := &api.Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", problem.Title, err)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), api.ProblemType) {
		if err := json.Unmarshal(body, problem); err != nil {
			return fmt.Errorf("%s: %w", problem.Title, err)
		}
	}
	return problem
}

// SessionQuery selects sessions; zero values select all.
type SessionQuery struct {
	Client, Server, Link, Device, Chain, State string
	Trees                                      bool // with every match, its whole connection
	Limit                                      int
}

// Path is the request that the query means.
func (q SessionQuery) Path() string {
	v := url.Values{}
	for key, value := range map[string]string{"client": q.Client, "server": q.Server, "link": q.Link,
		"device": q.Device, "chain": q.Chain, "state": q.State} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Trees {
		v.Set("tree", "true")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if len(v) == 0 {
		return "/v1/sessions"
	}
	return "/v1/sessions?" + v.Encode()
}
