package logs

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// Rotator rotates logs.
type Rotator struct {
	Runtime internalapi.RuntimeService
	// MaxSize (in bytes) and MaxFiles (including the current one) limit each container's log.
	MaxSize  int64
	MaxFiles int
	Now      func() time.Time
}

// Log is the log of a running container.
type Log struct{ ContainerID, Path string }

// Watch rotates the logs that list returns, every interval until ctx ends. At most workers logs are
// rotated at the same time. failed is called for each log that cannot be rotated.
func (r *Rotator) Watch(ctx context.Context, interval time.Duration, workers int, list func() []Log, failed func(Log, error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var all errgroup.Group
		all.SetLimit(max(workers, 1))
		for _, l := range list() {
			all.Go(func() error {
				if err := r.Rotate(ctx, l.ContainerID, l.Path); err != nil && ctx.Err() == nil {
					failed(l, err)
				}
				return nil
			})
		}
		_ = all.Wait()
	}
}

// Rotate renames the log of a running container if the log is too large.
func (r *Rotator) Rotate(ctx context.Context, containerID, path string) error {
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() < r.MaxSize {
		return nil
	}
	if err := r.tidy(path); err != nil {
		return fmt.Errorf("tidy up parts of log %s: %w", path, err)
	}
	aside := path + "." + r.Now().Format("20060102-150405")
	if err := os.Rename(path, aside); err != nil {
		return err
	}
	if err := r.Runtime.ReopenContainerLog(ctx, containerID); err != nil {
		// The runtime still writes to the renamed file, so restore its name.
		if back := os.Rename(aside, path); back != nil {
			return fmt.Errorf("reopen log %s: %w (and its name is lost: %w)", path, err, back)
		}
		return fmt.Errorf("reopen log %s: %w", path, err)
	}
	return nil
}

// Parts lists the rotated parts of a log, the oldest first.
func Parts(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".") {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	sort.Strings(out)
	return out, nil
}

// tidy compresses the renamed parts and removes the oldest. It leaves room for the current log and
// the part that is about to be renamed, so that there are MaxFiles in total.
func (r *Rotator) tidy(path string) error {
	parts, err := Parts(path)
	if err != nil {
		return err
	}
	keep := parts[:0]
	for _, p := range parts {
		if strings.HasSuffix(p, ".tmp") {
			if err := os.Remove(p); err != nil {
				return err
			}
			continue
		}
		keep = append(keep, p)
	}
	for len(keep) > max(r.MaxFiles-2, 0) {
		if err := os.Remove(keep[0]); err != nil {
			return err
		}
		keep = keep[1:]
	}
	for _, p := range keep {
		if !strings.HasSuffix(p, ".gz") {
			if err := compress(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func compress(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	tmp := path + ".tmp"
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	for _, close := range []func() error{z.Close, out.Close} {
		if e := close(); err == nil {
			err = e
		}
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := os.Rename(tmp, path+".gz"); err != nil {
		return err
	}
	return os.Remove(path)
}
