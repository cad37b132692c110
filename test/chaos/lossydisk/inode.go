package lossydisk

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// inode is a file, folder, symbolic link or socket. Disk.mu guards it.
type inode struct {
	number uint64
	mode   uint32 // type and permissions
	uid    uint32
	gid    uint32
	mtime  uint64 // nanoseconds since 1970
	links  uint32
	opens  int

	file   *file   // of a regular file
	folder *folder // of a folder
	target string  // of a symbolic link
}

func (i *inode) isFolder() bool { return i.mode&syscall.S_IFMT == syscall.S_IFDIR }

// attributes fills a's fields.
func (i *inode) attributes(a *fuse.Attr) {
	a.Ino, a.Mode, a.Nlink, a.Owner, a.Blksize = i.number, i.mode, max(1, i.links), fuse.Owner{Uid: i.uid, Gid: i.gid}, pageSize
	a.Mtime, a.Mtimensec = i.mtime/1e9, uint32(i.mtime%1e9)
	a.Ctime, a.Ctimensec, a.Atime, a.Atimensec = a.Mtime, a.Mtimensec, a.Mtime, a.Mtimensec
	switch {
	case i.file != nil:
		a.Size, a.Blocks = uint64(i.file.live.size), uint64(i.file.space()/sectorSize)
	case i.isFolder():
		a.Size, a.Nlink = pageSize, 2
	default:
		a.Size = uint64(len(i.target))
	}
}
