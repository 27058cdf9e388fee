package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sysctls is a desired set: path below /proc/sys → value.
type sysctls map[string]string

func sysctlPath(name string) string { return filepath.Join("/proc/sys", name) }

func readSysctl(name string) (string, error) {
	b, err := os.ReadFile(sysctlPath(name))
	return strings.TrimSpace(string(b)), err
}

func writeSysctl(name, value string) error {
	return os.WriteFile(sysctlPath(name), []byte(value), 0)
}

// applySysctls sets what is wanted, remembering what was there, and restores what is wanted no more.
func (h *host) applySysctls(want sysctls) error {
	for name := range h.st.Sysctls {
		if _, ok := want[name]; !ok {
			if err := h.restoreSysctl(name); err != nil {
				return err
			}
		}
	}
	for name, v := range want {
		if err := h.setSysctl(name, v); err != nil {
			return err
		}
	}
	return h.st.save()
}

func (h *host) setSysctl(name, value string) error {
	have, err := readSysctl(name)
	if errors.Is(err, fs.ErrNotExist) {
		h.log.Debug("sysctl not there", "sysctl", name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", name, err)
	}
	if have == value {
		return nil
	}
	if _, ok := h.st.Sysctls[name]; !ok {
		h.st.Sysctls[name] = have
		if err := h.st.save(); err != nil {
			return err
		}
	}
	if err := writeSysctl(name, value); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
	}
	return nil
}

// restoreSysctl forgets the record too; an interface that is gone took its sysctls with it.
func (h *host) restoreSysctl(name string) error {
	err := writeSysctl(name, h.st.Sysctls[name])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore sysctl %s: %w", name, err)
	}
	delete(h.st.Sysctls, name)
	return nil
}

func conf4(nic, key string) string { return "net/ipv4/conf/" + nic + "/" + key }
func conf6(nic, key string) string { return "net/ipv6/conf/" + nic + "/" + key }

// wantSysctls are the plan's. The kernel takes the larger of conf/all and conf/NIC for rp_filter,
// so all must be 0; every interface that is not ours keeps the protection it had by all.
func (h *host) wantSysctls(p *Plan) (sysctls, error) {
	want := sysctls{conf4("all", "rp_filter"): "0"}
	// Not default: the kernel copies a write to it to every interface that was never set itself.
	ours := map[string]bool{"all": true, "default": true, "lo": true}
	add := func(nic string) {
		ours[nic] = true
		want[conf4(nic, "rp_filter")] = "0"
	}
	for _, nic := range []string{frontLink, backLink, frontPeer, backPeer} {
		add(nic)
	}
	want[conf4(frontLink, "accept_local")] = "1"
	want[conf4(backLink, "accept_local")] = "1"
	for _, l := range p.Links {
		add(l.NIC)
		if l.quiet() {
			want[conf6(l.NIC, "disable_ipv6")] = "1"
		}
	}
	return want, h.keepReversePath(want, ours)
}

func (h *host) keepReversePath(want sysctls, ours map[string]bool) error {
	all, ok := h.st.Sysctls[conf4("all", "rp_filter")]
	if !ok {
		all, _ = readSysctl(conf4("all", "rp_filter"))
	}
	if all == "" || all == "0" {
		return nil
	}
	dirs, err := os.ReadDir(sysctlPath("net/ipv4/conf"))
	if err != nil {
		return fmt.Errorf("list interfaces' sysctls: %w", err)
	}
	for _, d := range dirs {
		name := conf4(d.Name(), "rp_filter")
		own, _ := readSysctl(name)
		if before, ok := h.st.Sysctls[name]; ok {
			own = before
		}
		if !ours[d.Name()] {
			want[name] = max(own, all)
		}
	}
	return nil
}
