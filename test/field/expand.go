package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	oldSize, newSize = 256 << 20, 512 << 20
	newWALSize       = "384Mi"
)

// expand makes the claims larger while the database works.
func (c *cluster) expand(note func(string, string, ...any)) error {
	before := map[string]int64{}
	for _, pod := range instances {
		size, err := c.fileSystem(pod)
		if err != nil {
			return err
		}
		if before[pod] = size; size > oldSize {
			return fmt.Errorf("the file system of %s has %d bytes, and its claim had %d", pod, size, oldSize)
		}
	}
	progress("expanding all claims")
	if _, err := c.pause(); err != nil {
		return err
	}
	began := time.Now()
	patch := fmt.Sprintf(`{"spec":{"storage":{"size":"%dMi"},"walStorage":{"size":%q}}}`, newSize>>20, newWALSize)
	if _, err := c.kubectl("patch", "-n", "shop", "clusters.postgresql.cnpg.io", "db", "--type=merge", "-p", patch); err != nil {
		return err
	}
	for _, pod := range instances { // a folder grows at once
		if err := c.want(2*time.Minute, newWALSize, ".status.capacity.storage", "-n", "shop", "pvc", pod+"-wal"); err != nil {
			return err
		}
	}
	if mayResizeMounted() {
		for _, pod := range instances {
			if err := c.expanded(pod); err != nil {
				return err
			}
		}
	} else if err := c.restartAll(); err != nil {
		return err
	}
	note("expansion: all file systems are larger after", "%s", seconds(time.Since(began).Seconds()))
	for _, pod := range instances {
		size, err := c.fileSystem(pod)
		if err != nil {
			return err
		}
		if size < newSize*9/10 {
			return fmt.Errorf("the file system of %s has %d bytes, and its claim %d", pod, size, newSize)
		}
		note("expansion: file system of "+pod, "%d to %d MiB", before[pod]>>20, size>>20)
	}
	pause, err := c.pause()
	note("expansion: longest time without an acknowledgement", "%s", pause)
	return err
}

// expanded waits until a claim of the instance has its new size.
func (c *cluster) expanded(pod string) error {
	return c.want(2*time.Minute, fmt.Sprintf("%dMi", newSize>>20), ".status.capacity.storage", "-n", "shop", "pvc", pod)
}

// restartAll makes a new pod for each instance, the primary's last: a machine that does not give
// CAP_SYS_RESOURCE grows file systems only while no pod uses them.
func (c *cluster) restartAll() error {
	primary, err := c.primary(time.Second, "")
	if err != nil {
		return err
	}
	var order []string
	for _, pod := range instances {
		if pod != primary {
			order = append(order, pod)
		}
	}
	for _, pod := range append(order, primary) {
		if pod == primary { // which would wait for its clients to leave, for minutes
			if err := c.promote(primary, order[0]); err != nil {
				return err
			}
			if err := c.healthy(3 * time.Minute); err != nil {
				return err
			}
		}
		progress("a new pod for %s: this machine grows only file systems that no pod uses", pod)
		if _, err := c.kubectl("delete", "-n", "shop", "pod", pod, "--timeout=120s"); err != nil {
			return err
		}
		if err := c.expanded(pod); err != nil {
			return err
		}
		if err := c.healthy(4 * time.Minute); err != nil {
			return err
		}
	}
	return c.writing(time.Minute)
}

// fileSystem returns the size of an instance's file system for data, as its pod sees it.
func (c *cluster) fileSystem(pod string) (int64, error) {
	out, err := c.kubectl("exec", "-n", "shop", pod, "-c", "postgres", "--", "df", "--output=size", "-B1", "/var/lib/postgresql/data")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(out)
	return strconv.ParseInt(fields[len(fields)-1], 10, 64)
}

// mayResizeMounted reports whether this process has CAP_SYS_RESOURCE, which ext4 asks for.
func mayResizeMounted() bool {
	status, _ := os.ReadFile("/proc/self/status")
	_, caps, _ := strings.Cut(string(status), "CapEff:")
	var mask uint64
	_, _ = fmt.Sscanf(caps, "%x", &mask)
	const sysResource = 24
	return mask&(1<<sysResource) != 0
}
