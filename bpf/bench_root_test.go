package bpf

import (
	"testing"

	"github.com/cilium/ebpf"

	"sslo/session/model"
	"sslo/session/model/rulebook"
)

// Time a packet spends in the program, by BPF_PROG_TEST_RUN. The kernel's own work on a frame
// is not in it.
func BenchmarkPacket(b *testing.B) {
	l := newLab(b)
	failed := rulebook.Bypassed()
	both := append(rulebook.Opened(), rulebook.Step{Change: rulebook.Fail(rulebook.DevA)}, rulebook.Step{Change: rulebook.Fail(rulebook.DevB)})
	rows := []struct {
		name   string
		before []rulebook.Step
		packet model.Packet
		want   string
	}{
		{"root", rulebook.Opened(), rulebook.Ack(rulebook.Front), "to a1"},
		{"middle", rulebook.Opened(), rulebook.Ack(rulebook.A2), "to b1"},
		{"last-leg", rulebook.Opened(), rulebook.Ack(rulebook.B2), "to back"},
		{"reply", rulebook.Opened(), rulebook.Answer(rulebook.B1), "to a2"},
		{"bypass-one", failed, rulebook.Ack(rulebook.Front), "to b1"},
		{"bypass-one-reply", failed, rulebook.Answer(rulebook.B1), "to front"},
		{"bypass-two", both, rulebook.Ack(rulebook.Front), "to back"},
		{"icmp", rulebook.Opened(), rulebook.ICMP(rulebook.Answer(rulebook.B1)), "to a2"},
		{"no-session", nil, rulebook.Ack(rulebook.A2), "drop no-session"},
	}
	for _, r := range rows {
		for family, as := range families {
			b.Run(r.name+"/"+family, func(b *testing.B) {
				d := newDuel(b, l)
				d.play(r.before, as)
				d.benchmark(b, as(r.packet), r.want)
			})
		}
	}
}

// benchmark repeats one packet in the kernel.
func (d *duel) benchmark(b *testing.B, p model.Packet, want string) {
	d.want(p, want)
	opts := ebpf.RunOptions{
		Data:    frameOf(p),
		Context: skBuff{Mark: uint32(p.Chain) << chainShift, Ifindex: uint32(d.ifindex[p.Link])},
		Repeat:  uint32(b.N),
	}
	b.ResetTimer()
	d.do(b, func() error {
		_, err := d.SteerFrame.Run(&opts)
		return err
	})
}
