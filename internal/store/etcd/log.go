package etcd

import (
	"context"
	"log/slog"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapToSlog returns a logger for etcd that passes on warnings and errors. It drops information, a
// hundred lines at each start.
func zapToSlog(to *slog.Logger) *zap.Logger {
	if to == nil {
		to = slog.Default()
	}
	return zap.New(&slogCore{to: to.With("component", "etcd")})
}

type slogCore struct {
	to     *slog.Logger
	fields []zapcore.Field
}

func (c *slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c *slogCore) With(f []zapcore.Field) zapcore.Core {
	return &slogCore{to: c.to, fields: append(c.fields[:len(c.fields):len(c.fields)], f...)}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	for _, text := range expected {
		if strings.Contains(e.Message, text) {
			return ce
		}
	}
	return ce.AddCore(e, c)
}

// expected lists parts of warnings that are part of normal operation.
var expected = []string{
	// lead requests an election until it is possible.
	"cannot campaign at term", "is unpromotable and can not campaign",
	// Each etcd logs this until its first snapshot is on disk.
	"Failed to detect schema version", "Failed to detect storage schema version", "failed to update storage version",
	// Each request that fails logs this, such as one for a compacted revision. The caller gets the
	// error.
	"failed to apply request", "retrying of unary invoker failed",
	// The server stopped before it had written its own name into the store.
	"failed to publish local member to cluster", "stopped publish because server is stopping", "server has stopped; skipping GoAttach",
	// Members connect again when another one has stopped. Reachable and Members tell its state.
	"TCP streaming connection with remote peer", "prober detected unhealthy status",
	// The callers of AddLearner, Promote and Remove get the error.
	"Validation on configuration change failed", "rejecting promote learner",
	// A removed member says goodbye.
	"skipped attributes update of removed member",
	// etcd recommends at most 8 GiB. Its quota is above the engine's own (space.go).
	"quota exceeds the maximum value",
	// etcd tries to remove segments of its log that it still needs.
	"failed to lock file",
	// Open returns the error.
	"bootstrap failed",
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	values := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(values)
	}
	for _, f := range fields {
		f.AddTo(values)
	}
	attrs := make([]slog.Attr, 0, len(values.Fields))
	for k, v := range values.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	c.to.LogAttrs(context.Background(), level, e.Message, attrs...)
	return nil
}

func (c *slogCore) Sync() error { return nil }
