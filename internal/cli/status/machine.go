package status

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/knarr-project/knarr/internal/clusters"
)

// processes returns knarr's process and the included containerd's.
func processes(r *clusters.Record) []Process {
	list := []Process{{Name: "knarr", PID: r.PID}}
	if pid := runtimePID(r.RunDir); pid != 0 {
		list = append(list, Process{Name: "containerd", PID: pid})
	}
	for i := range list {
		list[i].RSS, list[i].Private = memory(list[i].PID)
	}
	return list
}

// runtimePID returns the pid of containerd as recorded in the run folder, or 0.
func runtimePID(runDir string) int {
	var record struct {
		PID       int    `json:"pid"`
		StartTime string `json:"startTime"`
	}
	data, err := os.ReadFile(filepath.Join(runDir, "containerd.json"))
	if err != nil || json.Unmarshal(data, &record) != nil {
		return 0
	}
	if identity, err := clusters.Identity(record.PID); err != nil || identity != record.StartTime {
		return 0
	}
	return record.PID
}

// memory reads /proc/PID/status.
func memory(pid int) (rss, private int64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			rss = kilobytes << 10
		case "RssAnon:":
			private = kilobytes << 10
		}
	}
	return rss, private
}

// disk sums up the folder, for at most two seconds and on its own file system only.
func disk(dir string) Disk {
	var d Disk
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) == nil {
		d.Free, d.Total = int64(stat.Bavail)*stat.Bsize, int64(stat.Blocks)*stat.Bsize
	}
	var top syscall.Stat_t
	if syscall.Stat(dir, &top) != nil {
		return d
	}
	deadline := time.Now().Add(2 * time.Second)
	linked := map[uint64]bool{}
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			d.Partial = true
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if s.Dev != top.Dev {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if s.Nlink > 1 && !entry.IsDir() {
			if linked[s.Ino] {
				return nil
			}
			linked[s.Ino] = true
		}
		d.Folder += s.Blocks * 512
		if time.Now().After(deadline) {
			d.Partial = true
			return fs.SkipAll
		}
		return nil
	})
	return d
}

// diskPart warns when a tenth of the file system is free, because the node agent then begins to
// evict pods.
func diskPart(d Disk) Part {
	p := Part{Name: "disk", Health: Fine, Text: fmt.Sprintf("%s of %s are free", Bytes(d.Free), Bytes(d.Total))}
	if d.Total > 0 && d.Free < d.Total/10 {
		p.Health = Bad
		p.Text += ": below a tenth, images are removed and pods evicted"
	}
	return p
}

// certificates returns the data folder's certificates, ordered by expiry. It leaves out files that
// this user may not read.
func certificates(dataDir string) []Certificate {
	var list []Certificate
	// A joined node keeps certificate and key in one .pem file.
	for _, ending := range []string{".crt", ".pem"} {
		files, _ := filepath.Glob(filepath.Join(dataDir, "pki", "*"+ending))
		for _, file := range files {
			if cert := certificate(file); cert != nil {
				list = append(list, Certificate{strings.TrimSuffix(filepath.Base(file), ending), cert.NotAfter})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Certificate) int { return a.Expires.Compare(b.Expires) })
	return list
}

// certificate returns the first certificate of a PEM file, or nil.
func certificate(file string) *x509.Certificate {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return cert
		}
	}
}

func certificatePart(certs []Certificate, now time.Time) Part {
	p := Part{Name: "certificates", Health: Unknown, Text: "they cannot be read by this user"}
	if len(certs) == 0 {
		return p
	}
	first := certs[0]
	left := first.Expires.Sub(now)
	p.Health, p.Text = Fine, fmt.Sprintf("the first one, %s, expires on %s, in %d days", first.Name, first.Expires.Local().Format("2006-01-02"), int(left.Hours())/24)
	switch {
	case left <= 0:
		p.Health, p.Text = Bad, fmt.Sprintf("%s expired on %s", first.Name, first.Expires.Local().Format("2006-01-02"))
	case left < expiresSoon:
		p.Text += " (soon)"
	}
	return p
}

// Bytes formats a size in powers of 1000, as usual for disks.
func Bytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1e6:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
