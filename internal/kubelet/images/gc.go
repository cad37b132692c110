package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// minAge is the default of Collector.MinAge.
const minAge = 2 * time.Minute

// Collector removes images that no container uses, the least recently used first.
type Collector struct {
	Images internalapi.ImageManagerService
	// InUse lists the images of all existing containers, by id or reference.
	InUse func(ctx context.Context) (map[string]bool, error)
	// Listed is called with each list of all images, which was asked for at since. May be nil.
	Listed func(ctx context.Context, list []*runtimeapi.Image, since time.Time)
	// High and Low are percentages of the image filesystem. A High of 100 keeps all images
	// (KubeletConfiguration, imageGCHighThresholdPercent).
	High, Low int
	// MinAge is how long an image is kept after it was first seen; 0 selects two minutes. MaxAge is
	// how long it may be unused, since the start at least; 0 sets no limit.
	MinAge, MaxAge time.Duration
	Now            func() time.Time

	mu   sync.Mutex
	seen map[string]seen
}

type seen struct{ first, used time.Time }

// Collect removes images while the filesystem is too full. It also records when images are in use,
// so it must be called regularly.
func (c *Collector) Collect(ctx context.Context) error {
	free, err := c.candidates(ctx)
	if err != nil {
		return err
	}
	if free, err = c.removeOld(ctx, free); err != nil {
		return err
	}
	used, capacity, err := c.filesystem(ctx)
	if err != nil {
		return err
	}
	if capacity == 0 || c.High >= 100 || used*100 < capacity*uint64(c.High) {
		return nil
	}
	want := used - capacity*uint64(c.Low)/100
	freed, err := c.remove(ctx, free, want)
	if err == nil && freed < want {
		err = fmt.Errorf("failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free", want, freed)
	}
	return err
}

// removeOld removes the images that have been unused for longer than MaxAge (KEP-4210), and returns
// the others.
func (c *Collector) removeOld(ctx context.Context, free []*runtimeapi.Image) (young []*runtimeapi.Image, err error) {
	if c.MaxAge == 0 {
		return free, nil
	}
	var old []*runtimeapi.Image
	c.mu.Lock()
	for _, i := range free {
		s := c.seen[i.Id]
		last := s.used
		if last.IsZero() {
			last = s.first
		}
		if c.Now().Sub(last) > c.MaxAge {
			old = append(old, i)
		} else {
			young = append(young, i)
		}
	}
	c.mu.Unlock()
	_, err = c.remove(ctx, old, ^uint64(0))
	return young, err
}

// All removes every unused image.
func (c *Collector) All(ctx context.Context) error {
	free, err := c.candidates(ctx)
	if err != nil {
		return err
	}
	_, err = c.remove(ctx, free, ^uint64(0))
	return err
}

func (c *Collector) filesystem(ctx context.Context) (used, capacity uint64, err error) {
	info, err := c.Images.ImageFsInfo(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("image filesystem: %w", err)
	}
	if len(info.ImageFilesystems) == 0 {
		return 0, 0, nil
	}
	// A runtime with one snapshotter has one filesystem for its images.
	path := info.ImageFilesystems[0].GetFsId().GetMountpoint()
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("image filesystem %s: %w", path, err)
	}
	return (s.Blocks - s.Bavail) * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}

// candidates returns the images that may be removed, in order of removal.
func (c *Collector) candidates(ctx context.Context) ([]*runtimeapi.Image, error) {
	began := c.Now()
	list, err := c.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	if c.Listed != nil {
		c.Listed(ctx, list, began)
	}
	inUse, err := c.InUse(ctx)
	if err != nil {
		return nil, err
	}
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]seen{}
	}
	there := map[string]bool{}
	var free []*runtimeapi.Image
	for _, i := range list {
		there[i.Id] = true
		s, known := c.seen[i.Id]
		if !known {
			s.first = now
		}
		busy := inUse[i.Id] || i.Pinned
		for _, name := range append(append([]string{}, i.RepoTags...), i.RepoDigests...) {
			busy = busy || inUse[name]
		}
		if busy {
			s.used = now
		} else if now.Sub(s.first) >= cmp.Or(c.MinAge, minAge) {
			free = append(free, i)
		}
		c.seen[i.Id] = s
	}
	for id := range c.seen {
		if !there[id] {
			delete(c.seen, id)
		}
	}
	last := map[string]seen{}
	for _, i := range free {
		last[i.Id] = c.seen[i.Id]
	}
	sort.Slice(free, func(a, b int) bool {
		x, y := last[free[a].Id], last[free[b].Id]
		if !x.used.Equal(y.used) {
			return x.used.Before(y.used)
		}
		return x.first.Before(y.first)
	})
	return free, nil
}

func (c *Collector) remove(ctx context.Context, images []*runtimeapi.Image, want uint64) (freed uint64, err error) {
	var errs []error
	for _, i := range images {
		if freed >= want {
			break
		}
		if err := c.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: i.Id}); err != nil {
			errs = append(errs, fmt.Errorf("remove image %s: %w", i.Id, err))
			continue
		}
		freed += i.Size
	}
	return freed, errors.Join(errs...)
}
