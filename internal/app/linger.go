package app

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sslo/datapath"
)

// withdrawEvery is how often addresses are looked at that only open connections still need.
const withdrawEvery = time.Second

// lingering are addresses that a plan no longer has and that open connections may still need: those of
// the generation before, and what lingered then.
func lingering(before []datapath.Address, next datapath.Plan) []datapath.Address {
	var list []datapath.Address
	for _, addr := range before {
		same := func(o datapath.Address) bool { return o.Link == addr.Link && o.Prefix == addr.Prefix }
		onLink := func(l datapath.Link) bool { return l.Name == addr.Link }
		if !slices.ContainsFunc(next.Addresses, same) && !slices.ContainsFunc(list, same) && slices.ContainsFunc(next.Links, onLink) {
			list = append(list, addr)
		}
	}
	return list
}

// applyPlan applies a plan and what lingers. The caller holds reloading.
func (a *App) applyPlan(ctx context.Context, p datapath.Plan) error {
	p.Addresses = slices.Concat(p.Addresses, a.linger)
	if err := a.dp.Apply(ctx, p); err != nil {
		return fmt.Errorf("session plane: %w", err)
	}
	return nil
}

// withdraw takes away addresses whose last connection has ended. The caller holds reloading.
func (a *App) withdraw(ctx context.Context) error {
	if len(a.linger) == 0 {
		return nil
	}
	used := map[netip.Addr]bool{}
	for _, c := range a.proxy.List(0) {
		used[c.Listen.Addr().Unmap()] = true
	}
	still := slices.DeleteFunc(slices.Clone(a.linger), func(d datapath.Address) bool { return !used[d.Prefix.Addr()] })
	if len(still) == len(a.linger) {
		return nil
	}
	a.linger = still
	return a.applyPlan(ctx, a.current.Load().plan)
}

func (a *App) watchLingering(ctx context.Context) {
	tick := time.NewTicker(withdrawEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.reloading.Lock()
		err := a.withdraw(ctx)
		a.reloading.Unlock()
		if err != nil {
			a.log.Warn("addresses of virtual servers that were removed", "err", err)
		}
	}
}
