package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"sslo/admin/api"
	"sslo/admin/client"
	"sslo/config"
	"sslo/internal/explain"
)

func init() { register(newExplainCmd) }

var questionHelp = map[string]string{
	"src": "client `address` or address:port", "dst": "`address` or address:port that it connects to; port 443 if none is given",
	"proto": "tcp or udp", "link": "client `link` that it comes in on", "sni": "`name` that its ClientHello asks for",
	"alpn": "`protocols` that it offers, with commas", "tls-version": "highest `version` that it offers: 1.0 to 1.3",
	"tls-family": "`family` that it would speak: tls, tlcp, tls13-sm",
}

func newExplainCmd() *cobra.Command {
	var socket, file, output string
	var down []string
	given := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain what would happen to a connection, rule by rule and hop by hop",
		Long: `Explain what would happen to a connection: which rule or script decides, what is skipped and why.

The running daemon is asked, with the states that its devices and servers have now; or, with -f, a file:
then everything counts as up, but what --down names. Nothing is sent and nothing is counted.`,
		Example: "  sslo explain --src 10.1.2.3 --dst 192.0.2.10:443 --sni www.bank.test\n" +
			"  sslo explain -f new.yml --down ips1 --src 10.1.2.3 --dst 192.0.2.10 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usageError{cmd, fmt.Errorf("output is text or json, not %q", output)}
			}
			get := func(key string) string { return *given[key] }
			q, err := api.ParseQuestion(get)
			if err != nil {
				return usageError{cmd, err}
			}
			x, err := ask(cmd, socket, file, down, q, get)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(x)
			}
			showExplanation(newPrinter(cmd.OutOrStdout()), x)
			return nil
		},
	}
	addSocketFlag(cmd, &socket)
	for _, key := range api.QuestionKeys {
		given[key] = cmd.Flags().String(key, "", questionHelp[key])
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "explain by this configuration `file`, not by the running daemon")
	cmd.Flags().StringSliceVar(&down, "down", nil, "with -f: `names` of devices and address:port of servers that count as down")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	return cmd
}

func ask(cmd *cobra.Command, socket, file string, down []string, q api.Question, get func(string) string) (x api.Explanation, err error) {
	if file == "" {
		if len(down) > 0 {
			return x, usageError{cmd, errors.New("--down needs -f: the daemon knows what is down")}
		}
		v := url.Values{}
		for _, key := range api.QuestionKeys {
			if get(key) != "" {
				v.Set(key, get(key))
			}
		}
		err = client.New(socket).Get(cmd.Context(), "/v1/explain?"+v.Encode(), &x)
		return x, err
	}
	c, err := config.Load(file)
	var errs config.Errors
	if errors.As(err, &errs) {
		fmt.Fprintln(cmd.ErrOrStderr(), errs)
		return x, errSilent
	}
	if err != nil {
		return x, err
	}
	return explain.Offline(c, down).Answer(q)
}

func showExplanation(p *printer, x api.Explanation) {
	q := x.Question
	p.line("%s → %s (%s)%s%s", q.Source, q.Destination, q.Protocol, labelled(" on ", q.Link), labelled(", SNI ", q.SNI))
	for _, n := range x.Notes {
		p.line("note: %s", n)
	}
	if x.VirtualServer == "" {
		p.line("%s: sslo does nothing with it", x.Why)
		return
	}
	p.line("virtual server %s", x.VirtualServer)
	for i, r := range x.Rules {
		p.line("  rule %d %s: %s%s", i+1, r.Name, r.Verdict, conditions(r))
	}
	for _, h := range x.Script {
		p.line("  script %s: %s", h.Hook, hookSays(h))
	}
	for _, a := range x.Attempts[:max(len(x.Attempts)-1, 0)] {
		p.line("  %s named %s; not possible: %s", orVirtualServer(a.By), names(a.Chain, a.ServerPool), a.Refusal)
	}
	p.line("decided by %s: %s", orVirtualServer(x.By), x.Action)
	if x.Refusal != "" {
		p.line("refused: %s%s", x.Refusal, labelled(": ", x.Why))
	}
	showWay(p, x)
}

// showWay shows the chain before the server pool: the order in which they are applied.
func showWay(p *printer, x api.Explanation) {
	if x.Refusal == "" {
		p.line("chain %s (by %s)", nameOrNone(x.Chain), x.ChainBy)
	}
	for i, h := range x.Hops {
		p.line("  hop %d: pool %s (%s) %s%s%s", i+1, h.Pool, h.Method, h.Verdict, labelled(": ", h.Why), labelled(", by ", h.Takes))
		for _, d := range h.Devices {
			p.line("    %s", candidate(d))
		}
	}
	if x.Refusal != "" {
		return
	}
	if !x.Inspected {
		p.line("  uninspected, inside the process; the ledger counts it as %s", x.Uninspected)
	} else if x.Inner.IsValid() {
		p.line("  devices see %s → %s", x.Question.Source, x.Inner)
	}
	p.line("then server pool %s (by %s)", x.ServerPool, x.ServerPoolBy)
	for _, m := range x.Members {
		p.line("    %s", candidate(m))
	}
}

func candidate(c api.Candidate) string {
	text := c.Name
	if c.Weight > 0 {
		text += fmt.Sprintf(" (weight %d)", c.Weight)
	}
	if !c.Usable {
		text += ": skipped: " + c.Why
	}
	return text
}

func conditions(r api.RuleVerdict) string {
	var parts []string
	for _, c := range r.Conditions {
		sign := "no"
		if c.Holds {
			sign = "yes"
		}
		parts = append(parts, c.Name+" "+sign)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func hookSays(h api.HookVerdict) string {
	var parts []string
	if h.Error != "" {
		parts = append(parts, "failed: "+h.Error)
	}
	if h.Action != "" {
		parts = append(parts, h.Action)
	}
	if h.Chain != "" || h.ServerPool != "" {
		parts = append(parts, names(h.Chain, h.ServerPool))
	}
	for _, l := range h.Lines {
		parts = append(parts, fmt.Sprintf("logs %q", l))
	}
	if len(parts) == 0 {
		return "leaves everything open"
	}
	return strings.Join(parts, ", ")
}

func names(chain, pool string) string {
	return strings.TrimPrefix(labelled(", chain ", chain)+labelled(", server pool ", pool), ", ")
}

func labelled(label, text string) string {
	if text == "" {
		return ""
	}
	return label + text
}

func nameOrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func orVirtualServer(by string) string {
	if by == "" {
		return "the virtual server's own settings"
	}
	return by
}
