package app

import (
	"log/slog"
	"os"

	"sslo/config"
)

func newLogger(c config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(c.Level)}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
