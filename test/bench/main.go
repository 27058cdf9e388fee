// Command bench compares sslo with HAProxy and nginx in its place: the same namespaces, the same load,
// alternating, the peer on one core and client and origin on the other. It prints progress and a table,
// and a full run writes the table into docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sslo/test/bench/forward"
	"sslo/test/bench/load"
	"sslo/test/bench/report"
	"sslo/test/bench/topo"
)

type options struct {
	quick         bool
	only, peers   []string
	devices       []int
	repeat        int
	sslo          string
	report, json  string
	congestion    string
	peerCore      int
	clientCore    int
	size          int64 // bytes of a bulk transfer
	smReport      bool  // write the table of the SM stacks
	seconds, idle int
}

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "load":
		err = load.Main(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "forward":
		err = forward.Main(os.Args[2:])
	default:
		err = run(os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	var o options
	var only, peers, devices string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "two devices, small transfers, once; no report")
	flags.StringVar(&only, "only", "", "tests, comma separated: "+strings.Join(names(), ","))
	flags.StringVar(&peers, "peers", "sslo,nginx,haproxy,haproxy1,direct", "peers, comma separated")
	flags.StringVar(&devices, "devices", "0,1,2", "bridge devices in the chain")
	flags.IntVar(&o.repeat, "repeat", 3, "samples of each test")
	flags.StringVar(&o.sslo, "sslo", "bin/sslo", "the binary")
	flags.StringVar(&o.report, "report", "docs/performance.md", "document whose table a full run replaces")
	flags.StringVar(&o.json, "json", "", "write all samples to this file")
	flags.Int64Var(&o.size, "size", 1<<30, "bytes of a bulk transfer")
	flags.IntVar(&o.seconds, "seconds", 4, "length of a timed test")
	flags.IntVar(&o.idle, "idle", 2000, "idle connections")
	flags.StringVar(&o.congestion, "congestion", "cubic", "congestion control of all parties; sslo chooses its own")
	flags.IntVar(&o.peerCore, "peer-core", 1, "core of the peer")
	flags.IntVar(&o.clientCore, "client-core", 0, "core of client and origin")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.quick {
		o.size, o.seconds, o.idle, o.repeat, devices = 256<<20, 2, 500, 1, "2"
	}
	o.only, o.peers = split(only), split(peers)
	for _, d := range split(devices) {
		n, err := strconv.Atoi(d)
		if err != nil || n < 0 || n > 2 {
			return nil, fmt.Errorf("devices: %q is not 0, 1 or 2", d)
		}
		o.devices = append(o.devices, n)
	}
	if o.quick || only != "" || flags.NFlag() > 0 && (isSet(flags, "peers") || isSet(flags, "devices") || isSet(flags, "congestion")) {
		o.report = "" // a part of the truth does not replace the document's table
	}
	o.smReport = !o.quick && (only == "" && o.report != "" || only == "sm")
	var err error
	o.sslo, err = filepath.Abs(o.sslo)
	return &o, err
}

func isSet(flags *flag.FlagSet, name string) (set bool) {
	flags.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

func (o *options) wants(test string) bool { return len(o.only) == 0 || slices.Contains(o.only, test) }
func (o *options) has(peer string) bool   { return slices.Contains(o.peers, peer) }

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root: it makes network namespaces")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	restore, err := topo.AllowCongestion(o.congestion)
	if err != nil {
		return err
	}
	defer restore()
	b := &bench{options: o, out: &report.Report{
		Subject: "sslo", Peers: append(o.peers, "bridges"), Rivals: []string{"nginx", "haproxy", "haproxy1", "bridges"}, Machine: machine(),
	}}
	b.all(ctx)
	fmt.Println("\n" + b.out.Markdown())
	b.primitives(ctx)
	if o.json != "" {
		if err := b.out.WriteJSON(o.json); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case b.failed > 0:
		return fmt.Errorf("%d measurements failed", b.failed)
	case o.report != "":
		return b.out.Write(o.report)
	}
	return nil
}
