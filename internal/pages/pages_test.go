package pages

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestOnlyTheFilesReadOnlyAreasAreForgotten(t *testing.T) {
	const table = `00400000-02fef000 r-xp 00000000 08:01 1234                               /usr/bin/knarr
02fef000-07097000 r--p 02bef000 08:01 1234                               /usr/bin/knarr
07097000-071df000 rw-p 06c97000 08:01 1234                               /usr/bin/knarr
071df000-07250000 rw-p 00000000 00:00 0
7fd5fa200000-7fd83a200000 r--s 00000000 08:01 99                         /var/lib/a folder/db
7fd83a200000-7fd83a201000 r--s 00000000 08:01 98                         /other/usr/bin/knarr
7ffe1000-7ffe2000 r-xp 00000000 00:00 0                                  [vdso]
`
	for path, want := range map[string][]area{
		"/usr/bin/knarr":       {{0x400000, 0x2fef000}, {0x2fef000, 0x7097000}},
		"/var/lib/a folder/db": {{0x7fd5fa200000, 0x7fd83a200000}},
		"/usr/bin/other":       nil,
	} {
		if got, err := readOnly(strings.NewReader(table), path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %x, %v; want %x", path, got, err, want)
		}
	}
	if _, err := readOnly(strings.NewReader("x-y r--p 0 0 0 /a"), "/a"); err == nil {
		t.Error("a table that can not be read has been read")
	}
}

func TestForgottenPagesAreNotResidentAndCanBeReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	page := os.Getpagesize()
	want := bytes.Repeat([]byte("knarr"), 16*page/5)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, len(want), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	if !bytes.Equal(mapped, want) {
		t.Fatal("the file is not mapped")
	}
	if n := resident(t, mapped); n == 0 {
		t.Fatal("pages that were read are not resident")
	}
	if err := Forget(path); err != nil {
		t.Fatal(err)
	}
	if n := resident(t, mapped); n != 0 {
		t.Errorf("%d KB are resident", n)
	}
	if !bytes.Equal(mapped, want) {
		t.Error("the pages are others")
	}
}

// resident is how many kB of a mapping are counted as this process's.
func resident(t *testing.T, mapped []byte) (kb int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))
	inside := false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if low, _, ok := strings.Cut(fields[0], "-"); ok {
			inside = low == fmt.Sprintf("%x", from)
		}
		if inside && fields[0] == "Rss:" {
			if kb, err = strconv.Atoi(fields[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kb
}
