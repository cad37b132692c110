package lossydisk

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is an inode as the kernel knows it during one life of the disk.
type node struct {
	fs.Inode
	disk  *Disk
	life  int
	inode *inode
}

// handle is an open file.
type handle struct{ node *node }

var (
	_ fs.NodeLookuper   = (*node)(nil)
	_ fs.NodeCreater    = (*node)(nil)
	_ fs.NodeMkdirer    = (*node)(nil)
	_ fs.NodeMknoder    = (*node)(nil)
	_ fs.NodeLinker     = (*node)(nil)
	_ fs.NodeSymlinker  = (*node)(nil)
	_ fs.NodeReadlinker = (*node)(nil)
	_ fs.NodeUnlinker   = (*node)(nil)
	_ fs.NodeRmdirer    = (*node)(nil)
	_ fs.NodeRenamer    = (*node)(nil)
	_ fs.NodeReaddirer  = (*node)(nil)
	_ fs.NodeGetattrer  = (*node)(nil)
	_ fs.NodeSetattrer  = (*node)(nil)
	_ fs.NodeOpener     = (*node)(nil)
	_ fs.NodeReader     = (*node)(nil)
	_ fs.NodeWriter     = (*node)(nil)
	_ fs.NodeFsyncer    = (*node)(nil)
	_ fs.NodeAllocater  = (*node)(nil)
	_ fs.NodeStatfser   = (*node)(nil)
	_ fs.FileReleaser   = (*handle)(nil)
)

// enter locks the disk. It returns false after a crash: the node is of an earlier mount.
func (n *node) enter() (leave func(), ok bool) {
	n.disk.mu.Lock()
	if n.life != n.disk.life {
		n.disk.mu.Unlock()
		return func() {}, false
	}
	return n.disk.mu.Unlock, true
}

// child returns the kernel's inode of one of this folder's inodes; the disk is locked.
func (n *node) child(ctx context.Context, i *inode, out *fuse.EntryOut) *fs.Inode {
	i.attributes(&out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk, life: n.life, inode: i}, fs.StableAttr{Mode: i.mode & syscall.S_IFMT, Ino: i.number})
}

// Lookup implements fs.NodeLookuper.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return nil, syscall.EIO
	}
	i := n.inode.folder.live[name]
	if i == nil {
		return nil, syscall.ENOENT
	}
	return n.child(ctx, i, out), 0
}

// add makes an inode with a name in this folder; the disk is locked.
func (n *node) add(ctx context.Context, name string, mode uint32) *inode {
	var uid, gid uint32
	if caller, ok := fuse.FromContext(ctx); ok {
		uid, gid = caller.Uid, caller.Gid
	}
	i := n.disk.inode(mode, uid, gid)
	n.link(name, i)
	return i
}

func (n *node) link(name string, i *inode) {
	i.links++
	n.disk.journal.change(edit{n.inode, name, i})
	n.inode.touch()
}

func (i *inode) touch() { i.mtime = uint64(time.Now().UnixNano()) }

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return nil, nil, 0, syscall.EIO
	}
	i := n.inode.folder.live[name]
	switch {
	case i == nil:
		i = n.add(ctx, name, syscall.S_IFREG|mode&0o7777)
	case flags&syscall.O_EXCL != 0:
		return nil, nil, 0, syscall.EEXIST
	}
	child := n.child(ctx, i, out)
	i.opens++
	return child, &handle{child.Operations().(*node)}, 0, 0
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.Mknod(ctx, name, syscall.S_IFDIR|mode&0o7777, 0, out)
}

// Mknod implements fs.NodeMknoder.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	switch {
	case !ok:
		return nil, syscall.EIO
	case n.inode.folder.live[name] != nil:
		return nil, syscall.EEXIST
	}
	return n.child(ctx, n.add(ctx, name, mode), out), 0
}

// Symlink implements fs.NodeSymlinker.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	switch {
	case !ok:
		return nil, syscall.EIO
	case n.inode.folder.live[name] != nil:
		return nil, syscall.EEXIST
	}
	i := n.add(ctx, name, syscall.S_IFLNK|0o777)
	i.target = target
	return n.child(ctx, i, out), 0
}

// Readlink implements fs.NodeReadlinker.
func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return nil, syscall.EIO
	}
	return []byte(n.inode.target), 0
}

// Link implements fs.NodeLinker.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	switch {
	case !ok:
		return nil, syscall.EIO
	case n.inode.folder.live[name] != nil:
		return nil, syscall.EEXIST
	}
	i := target.(*node).inode
	n.link(name, i)
	i.attributes(&out.Attr)
	return target.EmbeddedInode(), 0
}

// Unlink implements fs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return syscall.EIO
	}
	i := n.inode.folder.live[name]
	if i == nil {
		return syscall.ENOENT
	}
	n.disk.journal.change(edit{n.inode, name, nil})
	n.inode.touch()
	n.drop(i)
	return 0
}

// drop takes a name from an inode; the disk is locked. The disk state may still have the file, so
// only the live space is given back.
func (n *node) drop(i *inode) {
	i.links--
	if i.links == 0 && i.opens == 0 && i.file != nil {
		n.disk.used -= i.file.space()
	}
}

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return syscall.EIO
	}
	i := n.inode.folder.live[name]
	switch {
	case i == nil:
		return syscall.ENOENT
	case !i.isFolder():
		return syscall.ENOTDIR
	case len(i.folder.live) > 0:
		return syscall.ENOTEMPTY
	}
	n.disk.journal.change(edit{n.inode, name, nil})
	n.inode.touch()
	return 0
}

// Rename implements fs.NodeRenamer.
func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return syscall.EIO
	}
	to := newParent.EmbeddedInode().Operations().(*node)
	i, replaced := n.inode.folder.live[name], to.inode.folder.live[newName]
	switch {
	case i == nil:
		return syscall.ENOENT
	case flags&^unix.RENAME_NOREPLACE != 0:
		return syscall.EINVAL
	case replaced == i:
		return 0
	case replaced != nil && flags&unix.RENAME_NOREPLACE != 0:
		return syscall.EEXIST
	case replaced != nil && replaced.isFolder() && len(replaced.folder.live) > 0:
		return syscall.ENOTEMPTY
	}
	n.disk.journal.change(edit{n.inode, name, nil}, edit{to.inode, newName, i})
	n.inode.touch()
	to.inode.touch()
	if replaced != nil && !replaced.isFolder() {
		n.drop(replaced)
	}
	return 0
}

// Readdir implements fs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return nil, syscall.EIO
	}
	var list []fuse.DirEntry
	for _, name := range sorted(n.inode.folder.live) {
		i := n.inode.folder.live[name]
		list = append(list, fuse.DirEntry{Name: name, Mode: i.mode, Ino: i.number})
	}
	return fs.NewListDirStream(list), 0
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return syscall.EIO
	}
	n.inode.attributes(&out.Attr)
	return 0
}

// Setattr implements fs.NodeSetattrer. Owner, permissions and times survive each crash.
func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return syscall.EIO
	}
	i := n.inode
	if mode, ok := in.GetMode(); ok {
		i.mode = i.mode&syscall.S_IFMT | mode&0o7777
	}
	if uid, ok := in.GetUID(); ok {
		i.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		i.gid = gid
	}
	if at, ok := in.GetMTime(); ok {
		i.mtime = uint64(at.UnixNano())
	}
	if size, ok := in.GetSize(); ok && i.file != nil {
		n.disk.resize(i.file, func() { i.file.truncate(int64(size)) })
		i.touch()
	}
	i.attributes(&out.Attr)
	return 0
}

// Open implements fs.NodeOpener.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return nil, 0, syscall.EIO
	}
	if i := n.inode; flags&syscall.O_TRUNC != 0 && i.file != nil {
		n.disk.resize(i.file, func() { i.file.truncate(0) })
	}
	n.inode.opens++
	return &handle{n}, fuse.FOPEN_KEEP_CACHE, 0
}

// Release implements fs.FileReleaser.
func (h *handle) Release(context.Context) syscall.Errno {
	leave, ok := h.node.enter()
	defer leave()
	if ok {
		i := h.node.inode
		if i.opens--; i.opens == 0 && i.links == 0 && i.file != nil {
			h.node.disk.used -= i.file.space()
		}
	}
	return 0
}

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:n.inode.file.live.readAt(dest, offset)]), 0
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	leave, ok := n.enter()
	defer leave()
	if !ok {
		return 0, syscall.EIO
	}
	f := n.inode.file
	if !n.disk.fits(f.grows(offset, int64(len(data)))) {
		return 0, syscall.ENOSPC
	}
	n.disk.resize(f, func() { f.writeAt(data, offset) })
	n.inode.touch()
	return uint32(len(data)), 0
}

// Fsync implements fs.NodeFsyncer, for files and folders.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.disk.sync(n.life, n.inode)
}

// Allocate implements fs.NodeAllocater. It reserves space, with or without a new size.
func (n *node) Allocate(_ context.Context, _ fs.FileHandle, offset, size uint64, mode uint32) syscall.Errno {
	leave, ok := n.enter()
	defer leave()
	f, end := n.inode.file, int64(offset+size)
	switch {
	case !ok:
		return syscall.EIO
	case mode&^unix.FALLOC_FL_KEEP_SIZE != 0 || f == nil:
		return syscall.EOPNOTSUPP
	case !n.disk.fits(max(f.space(), end) - f.space()):
		return syscall.ENOSPC
	}
	n.disk.resize(f, func() { f.reserved = max(f.reserved, end) })
	if mode == 0 {
		f.live.size = max(f.live.size, end)
	}
	return 0
}

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	n.disk.statfs(out)
	return 0
}
