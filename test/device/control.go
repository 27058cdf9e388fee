package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// request and reply are one JSON value each on the control socket.
type request struct {
	Mode Mode `json:"mode,omitempty"` // empty: only ask
}

type reply struct {
	Stats Stats  `json:"stats"`
	Error string `json:"error,omitempty"`
}

// ServeControl answers on a unix socket until ctx ends.
func (d *Device) ServeControl(ctx context.Context, path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		d.answerControl(c)
	}
}

func (d *Device) answerControl(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	var (
		req request
		rep reply
	)
	err := json.NewDecoder(c).Decode(&req)
	if err == nil && req.Mode != "" {
		err = d.SetMode(req.Mode)
	}
	if err == nil {
		rep.Stats, err = d.Stats()
	}
	if err != nil {
		rep.Error = err.Error()
	}
	json.NewEncoder(c).Encode(rep)
}

// Remote controls a device that runs as a process of its own.
type Remote struct {
	Socket string
	PID    int // of the process, to stop it for Hang; 0: hang by mode
}

// SetMode switches the device. Hang stops the whole process, any other mode continues it.
func (r *Remote) SetMode(m Mode) error {
	if r.PID == 0 {
		_, err := r.ask(request{Mode: m})
		return err
	}
	if m == Hang {
		return r.signal(unix.SIGSTOP)
	}
	if err := r.signal(unix.SIGCONT); err != nil {
		return err
	}
	_, err := r.ask(request{Mode: m})
	return err
}

// Stats asks the device; a hanging one does not answer.
func (r *Remote) Stats() (Stats, error) { return r.ask(request{}) }

// Close ends the process.
func (r *Remote) Close() error {
	if r.PID == 0 {
		return nil
	}
	return errors.Join(r.signal(unix.SIGTERM), r.signal(unix.SIGCONT))
}

func (r *Remote) signal(s unix.Signal) error {
	if err := unix.Kill(r.PID, s); err != nil {
		return fmt.Errorf("device process %d: %w", r.PID, err)
	}
	return nil
}

func (r *Remote) ask(req request) (Stats, error) {
	c, err := net.DialTimeout("unix", r.Socket, time.Second)
	if err != nil {
		return Stats{}, fmt.Errorf("device control: %w", err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	if err := json.NewEncoder(c).Encode(req); err != nil {
		return Stats{}, fmt.Errorf("device control: %w", err)
	}
	var rep reply
	if err := json.NewDecoder(c).Decode(&rep); err != nil {
		return Stats{}, fmt.Errorf("device control: %w", err)
	}
	if rep.Error != "" {
		return Stats{}, errors.New(rep.Error)
	}
	return rep.Stats, nil
}
