// Package probe does the I/O of package monitor: it sends every kind of probe, runs one
// goroutine a target that feeds its state machine, and keeps the set of targets across
// reloads. It decides nothing about states (package monitor does) and knows no chain, no proxy
// and no configuration file.
package probe
