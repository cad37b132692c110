package shutdown

import (
	"encoding/json"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/durable"
)

// times are when the last shutdown began to end pods, and when it had ended them. The file has
// upstream's layout.
type times struct {
	Start time.Time `json:"startTime,omitempty"`
	End   time.Time `json:"endTime,omitempty"`
}

// maxStateFile bounds the file.
const maxStateFile = 4096

func (m *Manager) readTimes() {
	if info, err := os.Lstat(m.StateFile); err != nil || !info.Mode().IsRegular() || info.Size() > maxStateFile {
		return
	}
	data, err := os.ReadFile(m.StateFile)
	if err == nil {
		err = json.Unmarshal(data, &m.times)
	}
	if err != nil {
		m.Log.Warn("cannot read the times of the last shutdown", "file", m.StateFile, "error", err)
		m.times = times{}
	}
}

// writeTimes writes the file to disk, since the machine may be off a moment later.
func (m *Manager) writeTimes() {
	m.mu.Lock()
	data, err := json.Marshal(m.times)
	m.mu.Unlock()
	if err == nil {
		err = durable.WriteFile(m.StateFile, data)
	}
	if err != nil {
		m.Log.Warn("cannot write the times of the shutdown", "file", m.StateFile, "error", err)
	}
}

// Collectors are upstream's metrics of the last shutdown: zero if there was none.
func (m *Manager) Collectors() []prometheus.Collector {
	gauge := func(name, help string, of func(times) time.Time) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			t := of(m.times)
			if t.IsZero() {
				return 0
			}
			return float64(t.UnixMilli()) / 1000
		})
	}
	return []prometheus.Collector{
		gauge("kubelet_graceful_shutdown_start_time_seconds", "[ALPHA] Last graceful shutdown start time since unix epoch in seconds", func(t times) time.Time { return t.Start }),
		gauge("kubelet_graceful_shutdown_end_time_seconds", "[ALPHA] Last graceful shutdown end time since unix epoch in seconds", func(t times) time.Time { return t.End }),
	}
}
