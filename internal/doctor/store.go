package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// checkStore checks the embedded store's files: whether they are damaged, or belong to a member
// that was found corrupt.
func checkStore(cfg *config.Config) Finding {
	const what = "store"
	if len(cfg.StoreEndpoints) > 0 {
		return Finding{Fine, what, "an outside etcd", ""}
	}
	dir := cfg.Path("etcd")
	size, err := etcd.CheckFolder(dir)
	switch {
	case err != nil:
		return Finding{Broken, what, err.Error(), etcd.WayBack(dir)}
	case size == 0:
		return Finding{Fine, what, "none yet in " + dir, ""}
	}
	return Finding{Fine, what, fmt.Sprintf("%s, a file of %.1f MiB, quota %s", dir, float64(size)/(1<<20), cfg.StoreQuota), ""}
}

// Bounds of a disk for the store. Each write waits for a sync, and etcd's members expect answers
// within some hundred milliseconds.
const (
	slowSync  = 100 * time.Millisecond // the median
	stuckSync = time.Second            // a single one
	// The measurement ends after this number of syncs, or after this time.
	syncs    = 16
	syncTime = 2 * time.Second
)

// checkStoreDisk measures how long the data folder's disk takes to sync a small write, as the
// store's log does.
func checkStoreDisk(cfg *config.Config) Finding {
	const what = "disk of the store"
	if len(cfg.StoreEndpoints) > 0 {
		return Finding{}
	}
	dir := nearest(cfg.Path("etcd"))
	took, err := measureSyncs(dir)
	if err != nil {
		return Finding{Degraded, what, err.Error(), "the speed of the disk cannot be measured"}
	}
	return judgeSyncs(etcd.DeviceOf(dir).String(), took)
}

// measureSyncs writes a file in dir and syncs it some times.
func measureSyncs(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".knarr-check-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4<<10)
	for begin := time.Now(); len(took) < syncs && (len(took) == 0 || time.Since(begin) < syncTime); {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(len(took)*len(block))); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, fmt.Errorf("sync %s: %w", filepath.Dir(f.Name()), err)
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

func judgeSyncs(device string, took []time.Duration) Finding {
	const what = "disk of the store"
	sorted := slices.Sorted(slices.Values(took))
	median, worst := sorted[len(sorted)/2], sorted[len(sorted)-1]
	found := fmt.Sprintf("%s syncs a write in %s, at worst in %s", device, median.Round(10*time.Microsecond), worst.Round(10*time.Microsecond))
	if median > slowSync || worst > stuckSync {
		return Finding{Degraded, what, found, fmt.Sprintf("more than %s is too slow for the store: put the data folder on an SSD, or take other load off this disk", slowSync)}
	}
	return Finding{Fine, what, found, ""}
}
