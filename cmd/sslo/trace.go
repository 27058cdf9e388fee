package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
)

func init() { register(newTraceCmd) }

// traceHelp is beside the words of `sslo explain`: a trace takes patterns where explain takes one connection.
var traceHelp = map[string]string{
	"src": "`address`, prefix, address:port or :port of the client", "dst": "the same of what it connects to",
	"sni": "`name` that its ClientHello asks for", "link": "client `link` that it comes in on",
}

type traceOptions struct {
	socket, output string
	count          uint64
	limit          time.Duration
}

func newTraceCmd() *cobra.Command {
	var o traceOptions
	given := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Follow new connections live: hops, bypasses, how they end",
		Long: `Follow new connections that match, live: the route that was chosen, every hop through the chain, what was
skipped or bypassed and why, the server, and how it ended. Times count from the client's connection.

It ends with Ctrl-C, after --for, or when --count connections have ended.`,
		Example: "  sslo trace --src 10.1.0.0/16\n  sslo trace --sni www.bank.test --count 1 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "text" && o.output != "json" {
				return usageError{cmd, fmt.Errorf("output is text or json, not %q", o.output)}
			}
			v := url.Values{}
			for key, value := range given {
				if *value != "" {
					v.Set(key, *value)
				}
			}
			return o.run(cmd, "/v1/trace?"+v.Encode())
		},
	}
	addSocketFlag(cmd, &o.socket)
	for _, key := range api.TraceKeys {
		given[key] = cmd.Flags().String(key, "", traceHelp[key])
	}
	cmd.Flags().Uint64Var(&o.count, "count", 0, "end when the first `n` connections have ended")
	cmd.Flags().DurationVar(&o.limit, "for", 0, "end after this `time`, such as 10s")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "`format`: text or json (a line an event)")
	return cmd
}

func (o *traceOptions) run(cmd *cobra.Command, path string) error {
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if o.limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.limit)
	}
	defer cancel()
	body, err := client.New(o.socket).Raw(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer body.Close()
	err = o.follow(body, cmd.OutOrStdout())
	if ctx.Err() != nil {
		return nil // the user ended it
	}
	return err
}

// follow shows events until the count is reached.
func (o *traceOptions) follow(body io.Reader, w io.Writer) error {
	t := &tracePrinter{printer: newPrinter(w)}
	ended := uint64(0)
	lines := bufio.NewReader(body)
	for o.count == 0 || ended < o.count {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the daemon ended the trace")
		}
		var e api.TraceEvent
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		if o.count > 0 && e.Connection > o.count {
			continue
		}
		if e.Kind == api.TraceClose {
			ended++
		}
		if o.output == "json" {
			if _, err := w.Write(line); err != nil {
				return err
			}
			continue
		}
		t.event(e)
	}
	return nil
}

// tracePrinter groups lines by connection: a title whenever another one has news.
type tracePrinter struct {
	*printer
	last   uint64
	titles map[uint64]string
}

func (t *tracePrinter) event(e api.TraceEvent) {
	switch e.Kind {
	case api.TraceBegin:
		t.line("%s", t.paint(dim, "tracing new connections; Ctrl-C ends it"))
		return
	case api.TraceLost:
		t.line("%s", t.paint(bad, fmt.Sprintf("%d events lost: they came faster than they were read", e.Lost)))
		return
	case api.TraceOpen:
		if t.titles == nil {
			t.titles = map[uint64]string{}
		}
		t.titles[e.Connection] = fmt.Sprintf("#%d  %s → %s  %s", e.Connection, e.Client, e.Server, e.VirtualServer)
	}
	if t.last != e.Connection {
		t.line("%s", t.paint(bold, t.titles[e.Connection]))
		t.last = e.Connection
	}
	text, s := traceLine(e)
	t.line("  %+10.4fs  %-8s  %s", e.Offset, e.Kind, t.paint(s, text))
	if e.Kind == api.TraceClose {
		delete(t.titles, e.Connection)
	}
}

// traceLine is an event in words, and how it is painted.
func traceLine(e api.TraceEvent) (string, style) {
	because := labelled(": ", e.Reason)
	switch e.Kind {
	case api.TraceOpen:
		return "on " + e.Link + " at " + e.Time.Local().Format("15:04:05.000"), plain
	case api.TraceTLS:
		return spokenInFull(e.TLS) + labelled(", ALPN ", e.ALPN), plain
	case api.TraceRoute:
		return traceRoute(e)
	case api.TraceSkip:
		return "past pool " + e.Pool + because, warn
	case api.TraceHop:
		return traceHop(e), plain
	case api.TraceBypass:
		return "goes past " + e.Device + " from now on" + because, warn
	case api.TraceReturned:
		return "goes to " + e.Device + " again", good
	case api.TraceReset:
		return "by the session plane" + labelled(" at ", e.Device) + labelled(", pool ", e.Pool) + because, bad
	case api.TraceReplaced:
		return "the client used its address and port again", warn
	case api.TraceRewrites:
		return e.Device + " rewrites sequence numbers: no bypass in mid-stream", warn
	case api.TraceServer:
		return e.Member + " of " + e.ServerPool + labelled(", ", inTLS(e.TLS)), plain
	case api.TraceClose:
		return traceClose(e)
	}
	return e.Reason, plain
}

// inTLS is empty with plaintext.
func inTLS(t *api.TLS) string {
	if t == nil {
		return ""
	}
	return spokenInFull(t)
}

func traceRoute(e api.TraceEvent) (string, style) {
	text := "by " + orVirtualServer(labelled("rule ", e.Rule)) + labelled(", SNI ", e.ServerName) + ": chain " + nameOrNone(e.Chain) + labelled(", server pool ", e.ServerPool)
	if e.Mode == "in-process" {
		return text + "; uninspected, inside the process" + labelled(": ", e.Reason), warn
	}
	if e.Mode == "bypass" {
		text += ", not decrypted"
	}
	return text + "; devices see " + e.Server.String(), plain
}

func traceHop(e api.TraceEvent) string {
	if e.Device == "" {
		return fmt.Sprintf("%s → %s, last leg, session %s", e.Link, e.NextLink, e.Session)
	}
	return fmt.Sprintf("%s → %s, device %s of pool %s, session %s", e.Link, e.NextLink, e.Device, e.Pool, e.Session)
}

func traceClose(e api.TraceEvent) (string, style) {
	text := e.Reason
	if e.Bytes != nil {
		text += fmt.Sprintf(", ↑ %s ↓ %s", size(e.Bytes[0]), size(e.Bytes[1]))
	}
	if e.SkippedBytes > 0 {
		text += fmt.Sprintf(", %s went past a device", size(e.SkippedBytes))
	}
	if e.Error != "" {
		return text + ": " + e.Error, bad
	}
	return text, plain
}
