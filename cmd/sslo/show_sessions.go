package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
)

// tableLimit keeps a busy box's table readable; JSON has no limit unless one is given.
const tableLimit = 1000

func newShowSessionsCmd(o *showOptions) *cobra.Command {
	var q client.SessionQuery
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "Sessions: one line a leg, or a tree a connection with --tree",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output == "table" && !cmd.Flags().Changed("limit") {
				q.Limit = tableLimit
			}
			render := rendered(showSessionTable)
			if q.Trees {
				render = rendered(showSessionTrees)
			}
			return o.show(cmd, q.Path(), render)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&q.Trees, "tree", false, "whole connections as trees")
	flags.StringVar(&q.Client, "client", "", "`address`, prefix, address:port or :port of the client")
	flags.StringVar(&q.Server, "server", "", "the same of the virtual server, with its plaintext port")
	flags.StringVar(&q.Link, "link", "", "legs that come in or leave by `link`")
	flags.StringVar(&q.Device, "device", "", "legs to `device`")
	flags.StringVar(&q.Chain, "chain", "", "sessions of `chain`")
	flags.StringVar(&q.State, "state", "", "`state`: established, closing, bypassed, ...")
	flags.IntVar(&q.Limit, "limit", 0, "at most `n` (default: 1000 in tables, all in JSON; 0: all)")
	return cmd
}

func newShowSessionCmd(o *showOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "session ID",
		Short: "One connection: its tree of sessions with links, devices, bypass, bytes, state",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseID(args[0])
			if err != nil {
				return usageError{cmd, err}
			}
			return o.show(cmd, "/v1/sessions/"+id.String(), rendered(showSessionTree))
		},
	}
}

func showSessionTable(p *printer, list api.SessionList) {
	slices.SortFunc(list.Sessions, func(a, b api.Session) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(a.Position, b.Position), cmp.Compare(a.ID, b.ID))
	})
	t := newTable("ID", "CLIENT", "SERVER", "CHAIN", "LINKS", "DEVICE", "STATE", ">FROM CLIENT", ">TO CLIENT", ">AGE", ">IDLE", "NOTE")
	for _, s := range list.Sessions {
		t.add(text(s.ID.String()), text(s.Client.String()), text(s.Server.String()), text(dash(s.Chain)),
			text(s.Link+" → "+s.NextLink), text(hop(s)), text(s.State), text(size(s.Bytes[0])), text(size(s.Bytes[1])),
			text(seconds(s.Age)), text(seconds(s.Idle)), cell{note(s), warn})
	}
	if len(list.Sessions) > 0 {
		p.table(t)
	}
	p.summary(list)
}

func (p *printer) summary(list api.SessionList) {
	if list.Count == 0 {
		p.line("There are no such sessions.")
	}
	if list.Truncated {
		p.line("%s", p.paint(dim, fmt.Sprintf("%d sessions shown, there are more: narrow it down or give --limit", list.Count)))
	}
	if list.Error != "" {
		p.line("%s", p.paint(bad, "the listing broke off: "+list.Error))
	}
}

// hop is the device that the session goes to.
func hop(s api.Session) string {
	if s.Device == "" {
		return "last leg"
	}
	return s.Device
}

// note says what is unusual about a session.
func note(s api.Session) string {
	var notes []string
	if s.Bypass != "" {
		notes = append(notes, "bypassed: "+s.Bypass)
	}
	for _, skipped := range s.Skipped {
		notes = append(notes, "past "+skipped.Pool+": "+skipped.Reason)
	}
	if s.RewritesSeq {
		notes = append(notes, "device rewrites sequence numbers")
	}
	return strings.Join(notes, ", ")
}

func showSessionTrees(p *printer, list api.SessionList) {
	byRoot := map[api.ID][]api.Session{}
	for _, s := range list.Sessions {
		byRoot[s.Root] = append(byRoot[s.Root], s)
	}
	trees := make([][]api.Session, 0, len(byRoot))
	for _, legs := range byRoot {
		trees = append(trees, legs)
	}
	slices.SortFunc(trees, func(a, b []api.Session) int {
		return cmp.Or(cmp.Compare(b[0].Age, a[0].Age), cmp.Compare(a[0].Root, b[0].Root))
	})
	for _, legs := range trees {
		showSessionTree(p, api.SessionList{Sessions: legs})
	}
	p.summary(list)
}

// showSessionTree draws a connection: who talks to whom, then each leg below the one that it came from.
func showSessionTree(p *printer, tree api.SessionList) {
	if len(tree.Sessions) == 0 {
		return
	}
	if c := tree.Connection; c != nil {
		p.line("%s", connectionLine(p, c))
	}
	first := tree.Sessions[0]
	top := &node{text: fmt.Sprintf("%s  %s → %s  chain %s  since %s",
		p.paint(bold, first.Protocol), first.Client, first.Server, dash(first.Chain), seconds(first.Age))}
	nodes := map[api.ID]*node{}
	for _, s := range tree.Sessions {
		parent, ok := nodes[s.Parent]
		if !ok {
			parent = top
		}
		nodes[s.ID] = parent.add(legLine(p, s))
		for _, skipped := range s.Skipped {
			nodes[s.ID].add(p.paint(warn, fmt.Sprintf("pool %s skipped: %s", skipped.Pool, skipped.Reason)))
		}
	}
	p.tree(top)
}

// connectionLine is what the proxies know: from whom to whom, by which name, how encrypted.
func connectionLine(p *printer, c *api.Connection) string {
	name := c.ServerName
	if name == "" {
		name = "no name asked for"
	}
	return fmt.Sprintf("%s  %s → %s  %s  %s  %s  server %s  %s", p.paint(bold, c.VirtualServer), c.Client, c.Listen, name,
		c.Stage, spokenInFull(c.TLS), dash(c.Member), spokenInFull(c.ServerTLS))
}

func legLine(p *printer, s api.Session) string {
	to := "last leg"
	if s.Device != "" {
		to = s.Pool + "/" + s.Device
	}
	line := fmt.Sprintf("%s  %s → %s  %s  %s  ↑ %s  ↓ %s  idle %s", p.paint(bold, s.ID.String()), s.Link, s.NextLink,
		to, s.State, size(s.Bytes[0]), size(s.Bytes[1]), seconds(s.Idle))
	if s.Bypass != "" {
		line += "  " + p.paint(warn, fmt.Sprintf("%s bypassed for %s: %s, %s went past it", s.Device, seconds(s.BypassFor), s.Bypass, size(s.SkippedBytes)))
	}
	if s.RewritesSeq {
		line += "  " + p.paint(dim, "rewrites sequence numbers")
	}
	return line
}
