// Package logs keeps container logs from filling the disk. It renames a log that has grown too
// large and asks the runtime to open a new one. It compresses the renamed parts and removes the
// oldest.
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

// tidy compresses the renamed parts and removes the oldest. It leaves room for the current log and
// the part that is about to be renamed, so that there are MaxFiles in total.
func (r *Rotator) tidy(path string) error {
	parts, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	sort.Strings(parts)
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
