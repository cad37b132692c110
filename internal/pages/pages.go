// Package pages returns mapped file pages to the kernel.
//
// Touched pages of the program and of the database file count as memory of the process until the
// kernel needs the memory. The larger half of the program is only needed at start. In the database
// file, pages around those that were read are mapped as well. Returned pages stay in the kernel's
// page cache. Touching them again maps them again, sixteen at a time, in about a microsecond.
package pages

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Forget returns all of the file's mapped pages that this process may not write and has never
// written. This excludes pages changed by a debugger or by the loader of a position-independent
// program.
//
// The caller must make sure that none of the file's mappings is removed meanwhile, because another
// mapping could take its place.
func Forget(path string) error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("forget pages of %s: %w", path, err)
	}
	defer f.Close()
	areas, err := unwritten(f, path)
	if err != nil {
		return fmt.Errorf("forget pages of %s: %w", path, err)
	}
	for _, a := range areas {
		// These pages contain only what is in the file.
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, a.from, a.to-a.from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("forget pages of %s: %w", path, errno)
		}
	}
	return nil
}

type area struct{ from, to uintptr }

// unwritten returns the file's mapped areas without write permission and without private pages.
// table has the format of /proc/self/smaps:
//
//	00400000-02fef000 r-xp 00000000 08:01 1234   /usr/bin/knarr
//	Anonymous:             0 kB
//	Swap:                  0 kB
func unwritten(table io.Reader, path string) (areas []area, err error) {
	var candidate area
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		switch {
		case len(fields) < 3:
		case string(fields[0]) == "Anonymous:" && string(fields[1]) != "0":
			candidate = area{}
		case string(fields[0]) == "Swap:": // follows Anonymous
			if candidate.to > 0 && string(fields[1]) == "0" {
				areas = append(areas, candidate)
			}
			candidate = area{}
		case fields[0][len(fields[0])-1] != ':': // the first line of an area
			candidate = area{}
			if len(fields) >= 6 && bytes.HasSuffix(lines.Bytes(), []byte(" "+path)) && bytes.IndexByte(fields[1], 'w') < 0 {
				if candidate, err = parseArea(string(fields[0])); err != nil {
					return nil, err
				}
			}
		}
	}
	return areas, lines.Err()
}

func parseArea(text string) (area, error) {
	low, high, _ := strings.Cut(text, "-")
	from, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return area{}, err
	}
	to, err := strconv.ParseUint(high, 16, 64)
	return area{uintptr(from), uintptr(to)}, err
}
