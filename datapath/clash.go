package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// maxMark is the largest chain id: the width of the chain's field in the socket mark.
const maxMark = 1024 - 1

// checkClashes refuses a plan whose interfaces, rule priorities, tables or mark bits somebody
// else uses. What an earlier process of ours left is not a clash.
func (h *host) checkClashes(p *Plan, want *network) error {
	errs := []error{checkShift(p.ChainShift), h.checkVeths()}
	priorities, tables := map[int]bool{}, map[int]bool{}
	for _, r := range want.rules {
		priorities[r.priority] = true
	}
	for _, t := range want.tables {
		tables[t] = true
	}
	for _, f := range families {
		rules, err := h.nl.RuleList(f)
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		for _, r := range rules {
			errs = append(errs, ruleClash(r, priorities, tables, p.ChainShift))
		}
		routes, err := h.allRoutes(f)
		if err != nil {
			return err
		}
		errs = append(errs, routeClashes(routes, tables))
	}
	return errors.Join(errs...)
}

func checkShift(shift uint) error {
	if uint64(maxMark)<<shift > 1<<32-1 {
		return fmt.Errorf("mark shift %d leaves no room for the chain in 32 bits: %w", shift, ErrClash)
	}
	return nil
}

func (h *host) checkVeths() error {
	var errs []error
	for _, name := range []string{frontLink, frontPeer, backLink, backPeer} {
		l, err := h.link(name)
		if errors.Is(err, ErrNoLink) {
			continue
		}
		if err == nil && !h.ownVeth(l) {
			err = fmt.Errorf("interface %s is not ours: %w", name, ErrClash)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func ruleClash(r netlink.Rule, priorities, tables map[int]bool, shift uint) error {
	if r.Protocol == ownProtocol {
		return nil
	}
	switch mask := ruleMask(r); {
	case priorities[r.Priority]:
		return fmt.Errorf("rule priority %d is taken by %q: %w", r.Priority, r, ErrClash)
	case tables[r.Table]:
		return fmt.Errorf("routing table %d is used by %q: %w", r.Table, r, ErrClash)
	case mask&(maxMark<<shift) != 0:
		return fmt.Errorf("mark bits %#x are used by %q (mark %#x/%#x): %w", uint32(maxMark<<shift), r, r.Mark, mask, ErrClash)
	}
	return nil
}

// ruleMask is the mark bits a rule looks at; a mark without a mask means all.
func ruleMask(r netlink.Rule) uint32 {
	if r.Mask != nil {
		return *r.Mask
	}
	if r.Mark != 0 {
		return 1<<32 - 1
	}
	return 0
}

func routeClashes(routes []netlink.Route, tables map[int]bool) error {
	for _, r := range routes {
		if tables[r.Table] && r.Protocol != ownProtocol {
			return fmt.Errorf("routing table %d holds a route that is not ours (%s): %w", r.Table, r, ErrClash)
		}
	}
	return nil
}
