package lossydisk

import (
	"maps"
	"slices"
)

// folder holds a folder's names in both states.
type folder struct {
	live, disk map[string]*inode
}

func newFolder() *folder {
	return &folder{live: map[string]*inode{}, disk: map[string]*inode{}}
}

// edit sets a name of a folder, or removes it if to is nil.
type edit struct {
	in   *inode
	name string
	to   *inode
}

// journal holds the changes of names that are not in the disk state yet, in their order. The edits
// of one change survive together.
type journal struct {
	changes [][]edit
}

// change applies edits to the live state.
func (j *journal) change(edits ...edit) {
	for _, e := range edits {
		set(e.in.folder.live, e.name, e.to)
	}
	j.changes = append(j.changes, edits)
}

func set(names map[string]*inode, name string, to *inode) {
	if to == nil {
		delete(names, name)
		return
	}
	names[name] = to
}

// sync writes the changes of a folder to the disk state, with all earlier changes of the folders
// that they concern too.
func (j *journal) sync(dir *inode) {
	concerned := map[*inode]bool{dir: true}
	written := make([]bool, len(j.changes))
	for i := len(j.changes) - 1; i >= 0; i-- {
		written[i] = slices.ContainsFunc(j.changes[i], func(e edit) bool { return concerned[e.in] })
		if written[i] {
			for _, e := range j.changes[i] {
				concerned[e.in] = true
			}
		}
	}
	var rest [][]edit
	for i, change := range j.changes {
		if written[i] {
			writeNames(change)
		} else {
			rest = append(rest, change)
		}
	}
	j.changes = rest
}

func writeNames(change []edit) {
	for _, e := range change {
		set(e.in.folder.disk, e.name, e.to)
	}
}

// crash writes the first changes of the journal and forgets the others. It returns their number.
func (j *journal) crash(survivors int) (lost int) {
	for _, change := range j.changes[:survivors] {
		writeNames(change)
	}
	lost = len(j.changes) - survivors
	j.changes = nil
	return lost
}

func sorted[K int64 | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
