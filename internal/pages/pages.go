// Package pages gives mapped pages of files back to the kernel.
//
// What a process has touched of its own program and of a database's file counts as its memory until the kernel needs it for something else. The program's
// larger half is only needed to start, and of a database's file, pages around those that were read are mapped as well. Given back, they stay in the
// kernel's cache of files for as long as it likes; touched again, they are mapped again, sixteen at a time, in about a microsecond.
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

// Forget gives back all pages of the file that this process has mapped, where it may not write now and has never written: not a debugger, nor the loader of a program
// that can lie anywhere, either. The caller sees to it that nobody takes away one of the file's mappings meanwhile: something else might be mapped there then.
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
		// There is nothing in these pages that the file does not have.
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, a.from, a.to-a.from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("forget pages of %s: %w", path, errno)
		}
	}
	return nil
}

type area struct{ from, to uintptr }

// unwritten are the file's areas without write permission and without pages of their own in a table like /proc/self/smaps:
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
		case string(fields[0]) == "Swap:": // comes after Anonymous
			if candidate.to > 0 && string(fields[1]) == "0" {
				areas = append(areas, candidate)
			}
			candidate = area{}
		case fields[0][len(fields[0])-1] != ':': // it begins an area
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
