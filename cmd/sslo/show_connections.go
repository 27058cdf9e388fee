package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"sslo/admin/api"
)

func newShowConnectionsCmd(o *showOptions) *cobra.Command {
	var from, to string
	limit := tableLimit
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "Connections of the proxies, also those that went past their chain inside the process",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"client": {from}, "server": {to}, "limit": {strconv.Itoa(limit)}}
			return o.show(cmd, "/v1/connections?"+q.Encode(), rendered(showConnections))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "client", "", "`address`, prefix, address:port or :port of the client")
	flags.StringVar(&to, "server", "", "the same of what the client connected to")
	flags.IntVar(&limit, "limit", limit, "at most `n`, the newest; 0: all")
	return cmd
}

func showConnections(p *printer, list api.ConnectionList) {
	t := newTable("CLIENT", "TO", "VIRTUAL SERVER", "NAME", "STAGE", "MODE", "CHAIN", "SERVER", "TLS", "SERVER TLS", ">FROM CLIENT", ">TO CLIENT", ">AGE")
	for _, c := range list.Connections {
		mode := cell{text: c.Mode}
		if c.Mode == "in-process" && c.Chain != "" {
			mode.style = warn // it has a chain, and no device sees it
		}
		t.add(text(c.Client.String()), text(c.Listen.String()), text(c.VirtualServer), text(dash(c.ServerName)), text(c.Stage), mode,
			text(dash(c.Chain)), text(dash(c.Member)), text(spoken(c.TLS)), text(spoken(c.ServerTLS)), text(size(c.Bytes[0])), text(size(c.Bytes[1])), text(seconds(c.Age)))
	}
	if list.Total > 0 {
		p.table(t)
	}
	p.line("%s", p.paint(dim, fmt.Sprintf("%d of %d connections", len(list.Connections), list.Total)))
}

// spoken is the version of one side; what SM has not a name of its own for is told apart.
func spoken(t *api.TLS) string {
	switch {
	case t == nil:
		return "-"
	case t.Family == "tls13-sm":
		return t.Version + " SM"
	}
	return t.Version
}

// spokenInFull has the suite too.
func spokenInFull(t *api.TLS) string {
	if t == nil {
		return "-"
	}
	text := spoken(t) + " " + t.Suite
	if t.Resumed {
		text += " (resumed)"
	}
	return text
}
