package lossydisk

import "math/rand/v2"

const (
	pageSize   = 4096
	sectorSize = 512 // the unit that a disk writes whole or not at all
)

type page [pageSize]byte

// content is the data of a file: its pages by number. A missing page reads as zeros. States share
// pages, so a page that two states hold is never changed.
type content struct {
	pages map[int64]*page
	size  int64
}

func newContent() content { return content{pages: map[int64]*page{}} }

// readAt fills p from offset on and returns the number of bytes before the end of the file.
func (c *content) readAt(p []byte, offset int64) int {
	if offset >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-offset)]
	for done := 0; done < len(p); {
		at := offset + int64(done)
		rest := p[done:]
		within := at % pageSize
		n := min(len(rest), int(pageSize-within))
		if data := c.pages[at/pageSize]; data != nil {
			copy(rest[:n], data[within:])
		} else {
			clear(rest[:n])
		}
		done += n
	}
	return len(p)
}

// file is the data of a regular file in both states.
type file struct {
	live, disk content
	// dirty are the pages that differ, or may differ, from the disk state.
	dirty map[int64]bool
	// lost are the dirty pages of a failed sync. A later sync does not write them.
	lost map[int64]bool
	// reserved is the number of bytes from the beginning that have a place on disk (fallocate).
	reserved int64
}

func newFile() *file {
	return &file{live: newContent(), disk: newContent(), dirty: map[int64]bool{}, lost: map[int64]bool{}}
}

// space returns the bytes that the file takes from the disk's space.
func (f *file) space() int64 {
	return max(f.reserved, int64(len(f.live.pages))*pageSize)
}

// grows returns how many more bytes of the disk a write needs.
func (f *file) grows(offset, length int64) int64 {
	fresh := int64(0)
	for n := offset / pageSize; n*pageSize < offset+length; n++ {
		if f.live.pages[n] == nil {
			fresh++
		}
	}
	return max(f.reserved, (int64(len(f.live.pages))+fresh)*pageSize) - f.space()
}

// writable returns a page of the live state that the disk state does not share.
func (f *file) writable(n int64) *page {
	data := f.live.pages[n]
	switch {
	case data == nil:
		data = new(page)
	case data == f.disk.pages[n]:
		copied := *data
		data = &copied
	}
	f.live.pages[n] = data
	f.dirty[n] = true
	delete(f.lost, n)
	return data
}

func (f *file) writeAt(p []byte, offset int64) {
	for len(p) > 0 {
		n := copy(f.writable(offset / pageSize)[offset%pageSize:], p)
		p, offset = p[n:], offset+int64(n)
	}
	f.live.size = max(f.live.size, offset)
}

// truncate sets the size of the live state.
func (f *file) truncate(size int64) {
	if size < f.live.size {
		for n := range f.live.pages {
			if n*pageSize >= size {
				delete(f.live.pages, n)
				f.dirty[n] = true
				delete(f.lost, n)
			}
		}
		if within := size % pageSize; within > 0 && f.live.pages[size/pageSize] != nil {
			clear(f.writable(size / pageSize)[within:])
		}
		f.reserved = min(f.reserved, size)
	}
	f.live.size = size
}

// sync makes the live state the disk state, except for lost pages.
func (f *file) sync() {
	for n := range f.dirty {
		if f.lost[n] {
			continue
		}
		if data := f.live.pages[n]; data != nil {
			f.disk.pages[n] = data
		} else {
			delete(f.disk.pages, n)
		}
		delete(f.dirty, n)
	}
	f.disk.size = f.live.size
}

// failSync marks the pages that a failed sync did not write.
func (f *file) failSync() {
	for n := range f.dirty {
		f.lost[n] = true
	}
}

// clean reports whether a crash changes nothing.
func (f *file) clean() bool { return len(f.dirty) == 0 && f.live.size == f.disk.size }

// crash decides about everything that was not synced. It returns how many pages lost their new
// content, at least in part.
func (f *file) crash(random *rand.Rand) (lost int) {
	size := f.disk.size
	if random.IntN(2) == 0 {
		size = f.live.size
	}
	for _, n := range sorted(f.dirty) {
		was, is := f.disk.pages[n], f.live.pages[n]
		if is == nil && size > f.live.size {
			continue // the truncation that dropped the page is lost
		}
		survives := mixed(was, is, random)
		if survives != is {
			lost++
		}
		if survives == nil {
			delete(f.disk.pages, n)
		} else {
			f.disk.pages[n] = survives
		}
	}
	f.disk.size = size
	restored := newFile()
	restored.reserved = f.reserved
	for n, data := range f.disk.pages {
		if n*pageSize < size {
			restored.disk.pages[n], restored.live.pages[n] = data, data
		}
	}
	restored.disk.size, restored.live.size = size, size
	if within := size % pageSize; within > 0 && restored.live.pages[size/pageSize] != nil {
		// Nothing may appear beyond the end when the file grows again.
		clear(restored.writable(size / pageSize)[within:])
		restored.sync()
	}
	*f = *restored
	return lost
}

// mixed returns the old or the new page, or one with sectors of both.
func mixed(was, is *page, random *rand.Rand) *page {
	switch random.IntN(3) {
	case 0:
		return was
	case 1:
		return is
	}
	var torn page
	for at := 0; at < pageSize; at += sectorSize {
		from := was
		if random.IntN(2) == 0 {
			from = is
		}
		if from != nil {
			copy(torn[at:at+sectorSize], from[at:])
		}
	}
	return &torn
}
