package lossydisk

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// capacity is the size of a disk that was not made smaller, in bytes.
const capacity = 64 << 30

// Disk is a mounted file system. Its methods are safe for concurrent use.
type Disk struct {
	dir    string
	server *fuse.Server

	mu      sync.Mutex // guards the fields below and all inodes
	life    int        // the number of crashes
	root    *inode
	journal journal
	numbers uint64 // the last inode number
	used    int64  // bytes
	size    int64  // bytes

	failing int // how many syncs will fail; negative: all
	errno   syscall.Errno
	delay   time.Duration // of each sync
	lying   bool
	syncs   int
}

// Mount mounts an empty disk at a folder that exists. The caller unmounts it with Close.
func Mount(dir string) (*Disk, error) {
	d := &Disk{dir: dir, size: capacity}
	d.root = d.inode(syscall.S_IFDIR|0o755, 0, 0)
	if err := d.mount(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Disk) mount() error {
	forever := time.Hour // all changes come through the kernel
	root := &node{disk: d, life: d.life, inode: d.root}
	server, err := fs.Mount(d.dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{
			DirectMountStrict: true, FsName: "lossydisk", Name: "lossydisk", MaxWrite: 1 << 20, DisableXAttrs: true,
			Options: []string{"default_permissions"},
		},
		EntryTimeout: &forever, AttrTimeout: &forever,
		RootStableAttr: &fs.StableAttr{Ino: d.root.number},
	})
	if err != nil {
		return fmt.Errorf("mount a lossy disk at %s: %w", d.dir, err)
	}
	d.server = server
	return nil
}

// Close unmounts the disk and forgets its content.
func (d *Disk) Close() error {
	if err := d.unmount(); err != nil {
		return fmt.Errorf("unmount the lossy disk at %s: %w", d.dir, err)
	}
	return nil
}

// unmount tears the mount off even if a process still has a file open there.
func (d *Disk) unmount() error {
	err := d.server.Unmount()
	if errors.Is(err, syscall.EBUSY) {
		return unix.Unmount(d.dir, unix.MNT_DETACH)
	}
	return err
}

// Losses counts what a crash has lost.
type Losses struct {
	Pages int // pages of files with old or mixed content
	Names int // changes of names
}

// Crash forgets what was not synced, except for a part that the seed chooses, and mounts the disk
// again. Programs that use the disk must have ended: their open files fail with EIO. Faults stay.
func (d *Disk) Crash(seed uint64) (Losses, error) {
	d.mu.Lock()
	d.life++ // requests of the old mount fail from here on
	d.mu.Unlock()
	if err := d.unmount(); err != nil {
		return Losses{}, fmt.Errorf("crash the lossy disk at %s: %w", d.dir, err)
	}
	d.mu.Lock()
	lost := d.forget(rand.New(rand.NewPCG(seed, 0)))
	d.mu.Unlock()
	return lost, d.mount()
}

// forget makes the state after a crash; mu is held.
func (d *Disk) forget(random *rand.Rand) (lost Losses) {
	survivors := 0
	if n := len(d.journal.changes); n > 0 && random.IntN(2) == 0 {
		survivors = random.IntN(n + 1)
	}
	lost.Names = d.journal.crash(survivors)
	d.used = 0
	seen := map[*inode]bool{}
	var walk func(i *inode)
	walk = func(i *inode) {
		i.links++
		if seen[i] {
			return
		}
		seen[i], i.links, i.opens = true, 1, 0
		if i.file != nil {
			lost.Pages += i.file.crash(random)
			d.used += i.file.space()
		}
		if i.folder == nil {
			return
		}
		clear(i.folder.live)
		for _, name := range sorted(i.folder.disk) {
			child := i.folder.disk[name]
			i.folder.live[name] = child
			walk(child)
		}
	}
	walk(d.root)
	return lost
}

// FailSyncs lets the next n syncs fail with the error, for example EIO; a negative n means all.
// 0 ends the fault.
func (d *Disk) FailSyncs(n int, errno syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing, d.errno = n, errno
}

// DelaySyncs makes each sync take this much longer.
func (d *Disk) DelaySyncs(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

// Lie makes syncs succeed without any effect, or ends that.
func (d *Disk) Lie(lying bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lying = lying
}

// LeaveFree sets the free space, in bytes. Writes that need more fail with ENOSPC. A negative
// number means a large disk.
func (d *Disk) LeaveFree(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size = capacity
	if bytes >= 0 {
		d.size = d.used + bytes
	}
}

// Syncs returns the number of syncs so far, failed ones included.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// inode makes an inode without a name; mu is held, or the disk is new.
func (d *Disk) inode(mode, uid, gid uint32) *inode {
	d.numbers++
	i := &inode{number: d.numbers, mode: mode, uid: uid, gid: gid, mtime: uint64(time.Now().UnixNano())}
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		i.file = newFile()
	case syscall.S_IFDIR:
		i.folder = newFolder()
	}
	return i
}

// fits reports whether so many more bytes fit on the disk; mu is held.
func (d *Disk) fits(bytes int64) bool { return bytes <= 0 || d.used+bytes <= d.size }

// resize applies change to a file and accounts for its space; mu is held.
func (d *Disk) resize(f *file, change func()) {
	before := f.space()
	change()
	d.used += f.space() - before
}

// sync is fsync or fdatasync of an inode. It waits without mu.
func (d *Disk) sync(life int, i *inode) syscall.Errno {
	d.mu.Lock()
	delay := d.delay
	d.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if life != d.life {
		return syscall.EIO
	}
	d.syncs++
	if d.failing != 0 {
		if d.failing > 0 {
			d.failing--
		}
		if i.file != nil {
			i.file.failSync()
		}
		return d.errno
	}
	switch {
	case d.lying:
	case i.file != nil:
		i.file.sync()
	case i.folder != nil:
		d.journal.sync(i)
	}
	return 0
}

// statfs describes the disk's space.
func (d *Disk) statfs(out *fuse.StatfsOut) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := uint64(max(0, d.size-d.used))
	out.Bsize, out.Frsize, out.NameLen = pageSize, pageSize, 255
	out.Blocks, out.Bfree, out.Bavail = uint64(d.size)/pageSize, free/pageSize, free/pageSize
	out.Files, out.Ffree = math.MaxInt32, math.MaxInt32
}

// Supported returns why this machine cannot mount a disk; nil if it can.
func Supported() error {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
