package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// diskSize is the size of the file system of the last member's data folder. The store's files need
// some 200 MB.
const diskSize = 512 << 20

// mountDisk makes the member's data folder a file system of its own. The mount exists only in the
// namespace of its host, so it ends with the process.
func (m *member) mountDisk() error {
	top := filepath.Dir(m.dataDir)
	return m.host.do(func() error {
		if err := os.MkdirAll(top, 0o700); err != nil {
			return err
		}
		return unix.Mount("tmpfs", top, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize))
	})
}

// diskWasFull excuses one end of the process. It comes some seconds after there is space again.
const diskWasFull = "its disk was full"

// fillDisk fills the last member's disk, wholly or nearly.
func fillDisk(random *rand.Rand, n int) fault {
	i, left := n-1, int64(random.IntN(2)*random.IntN(70))<<20
	return fault{fmt.Sprintf("the disk of s%d has %d MiB left", i+1, left>>20), []int{i}, func(_ context.Context, c *cluster) (func() error, error) {
		m := c.members[i]
		file := filepath.Join(filepath.Dir(m.dataDir), "ballast")
		m.excuse(diskWasFull)
		began := time.Now()
		return func() error {
			err := m.host.do(func() error { return os.Remove(file) })
			time.Sleep(calm) // the store looks for space every 20 ms
			c.ended(began)   // until now, it may answer with 500
			return err
		}, m.host.do(func() error { return ballast(file, left) })
	}}
}

// ballast fills a file system with a file, but for some bytes.
func ballast(path string, left int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return err
	}
	if total := int64(stat.Blocks) * stat.Bsize; total > diskSize {
		return fmt.Errorf("%s is not on a disk of its own: it has %d bytes", path, total)
	}
	if size := int64(stat.Bavail)*stat.Bsize - left; size > 0 {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if err == unix.ENOSPC { // the server was faster
		err = nil
	}
	return err
}

// removeMember removes a member by `knarr member rm` on another one. It joins anew at the end. The
// command may fail because of other faults.
func removeMember(random *rand.Rand, n int) fault {
	i, name := hit(random, n, "knarr member rm %s")
	j := (i + 1 + random.IntN(n-1)) % n
	return fault{fmt.Sprintf("%s on s%d", name, j+1), []int{i}, func(ctx context.Context, c *cluster) (func() error, error) {
		m := c.members[i]
		c.wiping.Lock()
		m.excuse("it is removed")
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := c.members[j].command(limited, "member", "rm", m.host.name, "--data-dir", c.members[j].dataDir)
		if err != nil {
			c.note("%v", err)
		}
		return func() error { return c.replace(ctx, m) }, nil
	}}
}

// loseDisk kills a member and deletes its data. It joins anew at the end.
func loseDisk(random *rand.Rand, n int) fault {
	i, name := hit(random, n, "%s loses its data")
	return fault{name, []int{i}, func(ctx context.Context, c *cluster) (func() error, error) {
		m := c.members[i]
		c.wiping.Lock()
		m.excuse("it joins")
		c.endMember(m, syscall.SIGKILL)
		return func() error { return c.replace(ctx, m) }, nil
	}}
}

// replace makes a member empty and lets it join the others, which may have faults. The caller has
// locked c.wiping: two members without data would be the end of the cluster.
func (c *cluster) replace(ctx context.Context, m *member) error {
	defer c.wiping.Unlock()
	defer m.excuse("")
	c.endMember(m, syscall.SIGKILL)
	err := m.host.do(func() error { return os.RemoveAll(m.dataDir) })
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(eventually); ; time.Sleep(calm) {
		for _, by := range c.members {
			if by == m {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = c.tryJoin(limited, m, by)
			cancel()
			if err == nil {
				return m.waitReady(eventually)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s cannot join: %w", m.host.name, err)
		}
	}
}
