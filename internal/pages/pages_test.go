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

func TestOnlyUnwrittenAreasOfTheFileAreReturned(t *testing.T) {
	const table = `00400000-02fef000 r-xp 00000000 08:01 1234                               /usr/bin/knarr
Rss:               39164 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me dw
02fef000-07097000 r--p 02bef000 08:01 1234                               /usr/bin/knarr
Anonymous:             0 kB
Swap:                  0 kB
07097000-071df000 rw-p 06c97000 08:01 1234                               /usr/bin/knarr
Anonymous:             0 kB
Swap:                  0 kB
071df000-07250000 r--p 06ddf000 08:01 1234                               /usr/bin/knarr
Anonymous:             4 kB
Swap:                  0 kB
07260000-07261000 r--p 06ddf000 08:01 1234                               /usr/bin/knarr
Anonymous:             0 kB
Swap:                  4 kB
07250000-07260000 rw-p 00000000 00:00 0 
Anonymous:            64 kB
Swap:                  0 kB
7fd5fa200000-7fd83a200000 r--s 00000000 08:01 99                         /var/lib/a folder/db
Anonymous:             0 kB
Swap:                  0 kB
7fd83a200000-7fd83a201000 r--s 00000000 08:01 98                         /other/usr/bin/knarr
Anonymous:             0 kB
Swap:                  0 kB
7ffe1000-7ffe2000 r-xp 00000000 00:00 0                                  [vdso]
Anonymous:             0 kB
Swap:                  0 kB
`
	for path, want := range map[string][]area{
		"/usr/bin/knarr":       {{0x400000, 0x2fef000}, {0x2fef000, 0x7097000}},
		"/var/lib/a folder/db": {{0x7fd5fa200000, 0x7fd83a200000}},
		"/usr/bin/other":       nil,
	} {
		if got, err := unwritten(strings.NewReader(table), path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %x, %v; want %x", path, got, err, want)
		}
	}
	if _, err := unwritten(strings.NewReader("x-y r--p 0 0 0 /a"), "/a"); err == nil {
		t.Error("an unreadable table was accepted")
	}
}

func TestWrittenPagesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	mapped[0] = 'y' // as a loader does before it removes the write permission
	if err := syscall.Mprotect(mapped, syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if err := Forget(path); err != nil {
		t.Fatal(err)
	}
	if mapped[0] != 'y' {
		t.Error("the written content is lost")
	}
}

func TestReturnedPagesAreNotResidentAndCanBeReadAgain(t *testing.T) {
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
		t.Error("the content of the pages differs")
	}
}

// resident returns how many kB of a mapping count as this process's memory.
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
