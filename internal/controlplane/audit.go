package controlplane

import (
	"log/slog"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/egress"
)

// openAudit opens the audit log. It returns nil if no policy is configured.
func openAudit(cfg *config.Audit, dial egress.Dial, log *slog.Logger) (*audit.Log, error) {
	if cfg.PolicyFile == "" {
		return nil, nil
	}
	policy, err := audit.LoadPolicy(cfg.PolicyFile)
	if err != nil {
		return nil, err
	}
	if policy.StrictErr != nil {
		log.Warn("ignoring unknown and duplicate fields of the audit policy", "file", cfg.PolicyFile, "err", policy.StrictErr)
	}
	out := &audit.Log{Policy: policy, Logger: log, Now: time.Now}
	if cfg.LogPath != "" {
		sink, err := audit.OpenFile(audit.File{
			Path: cfg.LogPath, MaxAge: cfg.LogMaxAge, MaxBackups: cfg.LogMaxBackups, MaxSize: cfg.LogMaxSize, Compress: cfg.LogCompress, Format: cfg.LogFormat,
		})
		if err != nil {
			return nil, err
		}
		if b := batching(&cfg.LogBatch, &cfg.LogTruncate); b != nil {
			sink = audit.Batched(sink, *b, out.Lost("log"))
		}
		add(out, "log", sink, &cfg.LogBatch, &cfg.LogTruncate)
	}
	if cfg.WebhookConfig != "" {
		sink, err := audit.OpenWebhook(cfg.WebhookConfig, dial, cfg.WebhookBackoff.Duration, batching(&cfg.WebhookBatch, &cfg.WebhookTruncate), out.Lost("webhook"))
		if err != nil {
			return nil, err
		}
		add(out, "webhook", sink, &cfg.WebhookBatch, &cfg.WebhookTruncate)
	}
	return out, nil
}

func add(to *audit.Log, name string, sink audit.Sink, b *config.AuditBatching, t *config.AuditTruncate) {
	if t.Enabled {
		sink = audit.Truncating(sink, t.MaxEvent)
	}
	to.Sinks = append(to.Sinks, audit.Destination{Sink: sink, Name: name, Strict: b.Mode == "blocking-strict"})
}

// batching returns nil if requests wait until their events are written.
func batching(b *config.AuditBatching, t *config.AuditTruncate) *audit.Batching {
	if b.Mode != "batch" {
		return nil
	}
	out := &audit.Batching{Buffer: b.BufferSize, MaxSize: b.MaxSize, MaxWait: b.MaxWait.Duration}
	if b.Throttle {
		out.QPS, out.Burst = b.QPS, b.Burst
	}
	if t.Enabled {
		out.MaxBytes = t.MaxBatch
	}
	return out
}
