package lossydisk

import (
	"maps"
	"testing"
)

func TestASyncOfAFolderWritesItsNamesOnly(t *testing.T) {
	a, b, f, g := &inode{folder: newFolder()}, &inode{folder: newFolder()}, &inode{file: newFile()}, &inode{file: newFile()}
	var j journal
	j.change(edit{a, "f", f})
	j.change(edit{b, "g", g})
	j.sync(a)
	if a.folder.disk["f"] != f || len(b.folder.disk) != 0 {
		t.Errorf("after the sync of one folder: %v and %v", a.folder.disk, b.folder.disk)
	}
	j.crash(0)
	if len(b.folder.disk) != 0 {
		t.Errorf("a crash wrote %v", b.folder.disk)
	}
}

// The sync of the target of a move writes the move. It needs the source's changes before it.
func TestASyncWritesTheChangesThatItBuildsOn(t *testing.T) {
	a, b, f := &inode{folder: newFolder()}, &inode{folder: newFolder()}, &inode{file: newFile()}
	var j journal
	j.change(edit{a, "f", f})
	j.change(edit{a, "f", nil}, edit{b, "moved", f})
	j.change(edit{a, "later", f})
	j.sync(b)
	if len(a.folder.disk) != 0 || b.folder.disk["moved"] != f || len(j.changes) != 1 {
		t.Errorf("after the sync of the target: %v, %v, %d changes", a.folder.disk, b.folder.disk, len(j.changes))
	}
}

func TestACrashKeepsTheFirstChanges(t *testing.T) {
	for survivors := range 4 {
		a, f := &inode{folder: newFolder()}, &inode{file: newFile()}
		var j journal
		for _, name := range []string{"1", "2", "3"} {
			j.change(edit{a, name, f})
		}
		if lost := j.crash(survivors); lost != 3-survivors {
			t.Errorf("%d of 3 changes are lost, expected %d", lost, 3-survivors)
		}
		want := map[string]*inode{}
		for _, name := range []string{"1", "2", "3"}[:survivors] {
			want[name] = f
		}
		if !maps.Equal(a.folder.disk, want) {
			t.Errorf("with %d survivors: %v", survivors, a.folder.disk)
		}
	}
}
