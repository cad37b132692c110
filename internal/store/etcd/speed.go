package etcd

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// A disk is slow if a write waited longer than slowOnce for it, or more than one of a hundred
	// longer than slowOften. etcd's histograms have these bounds.
	slowOnce  = 1024 * time.Millisecond
	slowOften = 128 * time.Millisecond

	// slowEvery is the shortest time between two reports of a slow disk.
	slowEvery = 10 * time.Minute
)

// The names of etcd's measurements of the disk.
const (
	logSyncs      = "etcd_disk_wal_fsync_duration_seconds"
	databaseSyncs = "etcd_disk_backend_commit_duration_seconds"
)

// SlowDisk is a report that the store's disk is slow.
type SlowDisk struct {
	Folder string
	Device Device
	// What names the slow step: the log or the database.
	What string
	// Writes is the number of writes of the last seconds, Slow of them waited longer than Bound.
	Writes, Slow uint64
	Bound        time.Duration
}

func (s SlowDisk) String() string {
	return fmt.Sprintf("the disk of the store is slow: %d of %d writes to %s waited longer than %s for %s, which holds %s",
		s.Slow, s.Writes, s.What, s.Bound, s.Device, s.Folder)
}

// diskSpeed judges etcd's measurements between two looks.
type diskSpeed struct {
	before   map[string]*dto.Histogram
	reported time.Time
}

// look reports a disk that was slow since the last look, to the log and to Options.OnSlowDisk.
func (d *diskSpeed) look(k *keeper) {
	now, first := diskHistograms(), d.before == nil
	before := d.before
	d.before = now
	if first {
		return // the start reads and writes much at once
	}
	for _, measured := range []struct{ name, what string }{{logSyncs, "its log"}, {databaseSyncs, "its database"}} {
		slow, ok := judgeDisk(before[measured.name], now[measured.name])
		if !ok {
			continue
		}
		k.e.slowLooks.Add(1)
		if time.Since(d.reported) < slowEvery && !d.reported.IsZero() {
			continue
		}
		d.reported = time.Now()
		slow.Folder, slow.What = k.e.space.disk.dir, measured.what
		slow.Device = DeviceOf(slow.Folder)
		k.log.Warn(slow.String(), "remedy", "a faster disk (SSD) for the data folder, or less load on this one; `knarr doctor` measures it")
		if k.slow != nil {
			k.slow(slow)
		}
	}
}

// judgeDisk compares two states of a histogram of waits.
func judgeDisk(before, now *dto.Histogram) (SlowDisk, bool) {
	if now == nil {
		return SlowDisk{}, false
	}
	writes := now.GetSampleCount() - before.GetSampleCount()
	for _, limit := range []struct {
		bound time.Duration
		least uint64
	}{{slowOnce, 1}, {slowOften, writes/100 + 2}} {
		slow := writes - (upTo(now, limit.bound) - upTo(before, limit.bound))
		if writes > 0 && slow >= limit.least {
			return SlowDisk{Writes: writes, Slow: slow, Bound: limit.bound}, true
		}
	}
	return SlowDisk{}, false
}

// upTo counts the samples up to a bound.
func upTo(h *dto.Histogram, bound time.Duration) uint64 {
	var n uint64
	for _, b := range h.GetBucket() {
		if b.GetUpperBound() <= bound.Seconds()+1e-9 {
			n = b.GetCumulativeCount()
		}
	}
	return n
}

// diskHistograms reads etcd's measurements, which it keeps in Prometheus' default registry.
func diskHistograms() map[string]*dto.Histogram {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return nil
	}
	found := map[string]*dto.Histogram{}
	for _, f := range families {
		if name := f.GetName(); (name == logSyncs || name == databaseSyncs) && len(f.GetMetric()) == 1 {
			found[name] = f.GetMetric()[0].GetHistogram()
		}
	}
	return found
}
