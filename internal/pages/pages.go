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
	"syscall"
)

// Forget gives back all pages of the file that this process has mapped and may not write to. The caller sees to it that nobody takes away one of the file's mappings
// meanwhile: something else might be mapped there then.
func Forget(path string) error {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("forget pages of %s: %w", path, err)
	}
	defer f.Close()
	areas, err := readOnly(f, path)
	if err != nil {
		return fmt.Errorf("forget pages of %s: %w", path, err)
	}
	for _, a := range areas {
		// Without a write there is nothing in these pages that the file does not have.
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, a.from, a.to-a.from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("forget pages of %s: %w", path, errno)
		}
	}
	return nil
}

type area struct{ from, to uintptr }

// readOnly are the file's areas in a table like /proc/self/maps: "00400000-02fef000 r-xp 00000000 08:01 1234   /usr/bin/knarr".
func readOnly(table io.Reader, path string) (areas []area, err error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 6 || !bytes.HasSuffix(lines.Bytes(), []byte(" "+path)) || bytes.IndexByte(fields[1], 'w') >= 0 {
			continue
		}
		low, high, _ := bytes.Cut(fields[0], []byte("-"))
		from, err := strconv.ParseUint(string(low), 16, 64)
		if err != nil {
			return nil, err
		}
		to, err := strconv.ParseUint(string(high), 16, 64)
		if err != nil {
			return nil, err
		}
		areas = append(areas, area{uintptr(from), uintptr(to)})
	}
	return areas, lines.Err()
}
