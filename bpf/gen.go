// Package bpf owns the eBPF programs of the session plane and their generated Go types. It
// knows how packets move between links; it does not load, attach or fill anything (package
// datapath does).
package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package bpf -output-stem sslo -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type link_role -type direction -type service -type method -type action -type tcp_state -type bypass_reason -type drop_reason -type verdict -type event_type -type session_flag -type event -type chain_tap -type next_hop -type link_key -type controls -type control -type counter -type pool_device Sslo sslo.c
