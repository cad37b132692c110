package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrPartial means that a walk could not count everything; its sums are lower bounds.
var ErrPartial = errors.New("not everything could be counted")

const (
	// heldFolders is how many folders on the way to the current one stay open. From deeper ones, a
	// walk returns by "..".
	heldFolders = 64
	// maxKept limits what a walk remembers: names of folders that it still has to enter, and files
	// with several names.
	maxKept = 1 << 20
)

// DiskUsage sums blocks and counts inodes below a folder; hard links count once. Files that vanish
// meanwhile are ignored, and so are file systems that are mounted below.
//
// A pod can write the folder. The walk opens every folder relative to its parent and follows no
// links. So it does not leave the folder, and neither depth nor a path over PATH_MAX stops it.
func DiskUsage(ctx context.Context, dir string) (bytes, inodes uint64, err error) {
	w := walk{ctx: ctx, seen: map[inode]bool{}}
	defer w.close()
	if err := w.root(dir); err != nil {
		return 0, 0, err
	}
	for len(w.levels) > 0 && ctx.Err() == nil {
		w.step()
	}
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("measure %s: %w: %w", dir, ErrPartial, ctx.Err())
	case w.partial:
		err = fmt.Errorf("measure %s: %w", dir, ErrPartial)
	}
	return w.bytes, w.inodes, err
}

// walk is a walk in progress. The last level is the current folder.
type walk struct {
	ctx           context.Context
	device        uint64
	levels        []level
	kept          int
	seen          map[inode]bool // those with several names
	bytes, inodes uint64
	partial       bool
}

// inode identifies a file.
type inode struct{ device, number uint64 }

// level is a folder on the way to the current one.
type level struct {
	dir     *os.File // nil if closed
	inode   uint64
	pending []string // names of folders that the walk still has to enter
}

func (w *walk) close() {
	for _, l := range w.levels {
		if l.dir != nil {
			l.dir.Close()
		}
	}
}

const openFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

func (w *walk) root(dir string) error {
	fd, err := unix.Open(dir, openFolder, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	w.device = st.Dev
	w.count(&st)
	w.enter(fd, st.Ino)
	return nil
}

// step enters the next folder below the current one, or returns to the parent of the current one.
func (w *walk) step() {
	top := &w.levels[len(w.levels)-1]
	n := len(top.pending)
	if n == 0 {
		w.leave()
		return
	}
	name := top.pending[n-1]
	top.pending = top.pending[:n-1]
	w.kept--
	fd, err := unix.Openat(int(top.dir.Fd()), name, openFolder, 0)
	if err != nil {
		w.partial = w.partial || !gone(err)
		return
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != w.device {
		unix.Close(fd)
		return
	}
	if len(w.levels) > heldFolders {
		top.dir.Close()
		top.dir = nil
	}
	w.enter(fd, st.Ino)
}

// gone reports whether a folder was removed or replaced since its name was read.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// leave returns to the parent of the current folder. If the folder was moved meanwhile, the walk
// continues at the deepest folder above that is still open.
func (w *walk) leave() {
	last := len(w.levels) - 1
	child := w.levels[last].dir
	w.levels = w.levels[:last]
	defer child.Close()
	if last == 0 || w.levels[last-1].dir != nil {
		return
	}
	parent := &w.levels[last-1]
	fd, err := unix.Openat(int(child.Fd()), "..", openFolder, 0)
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Dev == w.device && st.Ino == parent.inode {
			parent.dir = os.NewFile(uintptr(fd), "..")
			return
		}
		unix.Close(fd)
	}
	w.partial = true
	for len(w.levels) > 0 && w.levels[len(w.levels)-1].dir == nil {
		w.kept -= len(w.levels[len(w.levels)-1].pending)
		w.levels = w.levels[:len(w.levels)-1]
	}
}

// enter makes a folder the current one and counts what is in it.
func (w *walk) enter(fd int, inode uint64) {
	l := level{dir: os.NewFile(uintptr(fd), "."), inode: inode}
	for w.ctx.Err() == nil {
		names, err := l.dir.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != nil {
				continue
			}
			// Files of an overlay file system can have other devices than its folders.
			folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
			if folder && st.Dev != w.device || !w.count(&st) || !folder {
				continue
			}
			if w.kept+len(w.levels) >= maxKept {
				w.partial = true
				continue
			}
			w.kept++
			l.pending = append(l.pending, name)
		}
		if err != nil {
			w.partial = w.partial || !errors.Is(err, io.EOF) && !gone(err)
			break
		}
	}
	w.levels = append(w.levels, l)
}

// count counts one file or folder. It returns false if the file was counted under another name.
func (w *walk) count(st *unix.Stat_t) bool {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.seen[inode{st.Dev, st.Ino}] {
			return false
		}
		if len(w.seen) >= maxKept {
			w.partial = true
			return false
		}
		w.seen[inode{st.Dev, st.Ino}] = true
	}
	w.bytes += uint64(st.Blocks) * 512
	w.inodes++
	return true
}
