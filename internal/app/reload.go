package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sslo/admin"
	"sslo/admin/api"
	"sslo/config"
	"sslo/monitor/probe"
)

var errStopping = &api.Problem{Status: http.StatusConflict, Title: "The daemon is stopping"}

// Reload implements admin.Control: it reads the configuration again and makes everything match it.
// Whatever goes wrong, the one before stays in force.
func (a *App) Reload(ctx context.Context) (api.Reload, error) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if a.stopping {
		return api.Reload{}, errStopping
	}
	cfg, err := config.Load(a.opts.File)
	if err == nil {
		err = unchangeable(a.current.Load().config, cfg)
	}
	if err != nil {
		a.refused(err)
		return api.Reload{}, refusal(a.opts.File, err)
	}
	old := a.current.Load()
	next := &generation{config: cfg, plan: plan(cfg), loaded: time.Now()}
	changes := difference(old.config, cfg)
	if err := a.replace(ctx, old, next); err != nil {
		a.refused(err)
		return api.Reload{}, refusal(a.opts.File, err)
	}
	a.log.Info("configuration reloaded", "changes", len(changes))
	for _, c := range changes {
		a.log.Info("configuration changed", "reason", c)
	}
	a.events.add(api.Event{Kind: kindConfig, Message: fmt.Sprintf("configuration reloaded, changes: %d", len(changes))})
	return api.Reload{Changes: changes}, nil
}

// replace goes from one generation to the next, and back when a step fails.
func (a *App) replace(ctx context.Context, old, next *generation) error {
	err := a.apply(ctx, next)
	if err == nil {
		return nil
	}
	if back := a.apply(ctx, old); back != nil {
		a.log.Error("going back to the configuration before failed", "err", back)
	}
	return err
}

// apply has the order of start: the planes know a chain before the proxy asks for it.
func (a *App) apply(ctx context.Context, g *generation) error {
	a.linger = lingering(slices.Concat(a.current.Load().plan.Addresses, a.linger), g.plan)
	if err := a.applyPlan(ctx, g.plan); err != nil {
		return err
	}
	a.current.Store(g)
	if err := a.devices.Reload(deviceTargets(g.config)); err != nil {
		return fmt.Errorf("monitors: %w", err)
	}
	if err := a.servers.Reload(serverTargets(g.config)); err != nil {
		return fmt.Errorf("monitors: %w", err)
	}
	if err := a.pushDevices(); err != nil {
		return err
	}
	a.routes.setPlan(g.plan)
	a.refreshServers(g.config)
	if err := a.proxy.Reload(proxyConfig(g.config)); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return a.withdraw(ctx)
}

// pushDevices tells the session plane what the monitors know, for devices that are new to it.
func (a *App) pushDevices() error {
	for _, d := range a.devices.Status() {
		if err := a.setDevice(d.Name, d.DeviceStatus()); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) refused(err error) {
	var errs config.Errors
	if !errors.As(err, &errs) {
		a.log.Error("configuration refused, the one before stays in force", "err", err)
	}
	for _, e := range errs {
		a.log.Error("configuration refused, the one before stays in force", "err", e)
	}
	a.events.add(api.Event{Kind: kindConfig, Message: "configuration refused, the one before stays in force: " + firstLine(err), Reason: err.Error()})
}

func firstLine(err error) string {
	line, _, more := strings.Cut(err.Error(), "\n")
	if more {
		line += " (and more)"
	}
	return line
}

// refusal is the same for the one who asked.
func refusal(file string, err error) *api.Problem {
	p := &api.Problem{Status: http.StatusUnprocessableEntity, Title: "Configuration refused"}
	var errs config.Errors
	if !errors.As(err, &errs) {
		p.Detail = fmt.Sprintf("%s was refused, nothing has changed: %v", file, err)
		return p
	}
	for _, e := range errs {
		p.Errors = append(p.Errors, api.ConfigError{File: e.File, Line: e.Line, Column: e.Col, Path: e.Path, Message: e.Msg})
	}
	p.Detail = fmt.Sprintf("%s was refused, nothing has changed; errors: %d", file, len(errs))
	return p
}

// hangup is SIGHUP.
func (a *App) hangup(ctx context.Context) {
	a.log.Info("hangup: reading the configuration again")
	a.Reload(ctx) // what is wrong is in the log
}

// Operate implements admin.Control.
func (a *App) Operate(_ context.Context, device, action, who string) error {
	if _, ok := a.devices.Get(device); !ok {
		return fmt.Errorf("device %q: %w", device, admin.ErrNotFound)
	}
	if err := a.store.decide(device, api.Decision{Action: action, By: who, At: time.Now()}); err != nil {
		return err
	}
	a.log.Info("operator's decision", "device", device, "action", action, "by", who)
	err := a.devices.Operator(device, operatorCommands[action], who)
	if errors.Is(err, probe.ErrNoTarget) {
		return fmt.Errorf("device %q: %w", device, admin.ErrNotFound)
	}
	return err
}
