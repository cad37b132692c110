package snapshots

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTidyRemovesTheUnfinishedRecordOfAKilledProcess(t *testing.T) {
	folder := Folder(t.TempDir())
	name := ScheduledName("one", time.Unix(1e9, 0)) + plainEnding
	left, other := "."+name+recordEnding+"-12345", ".another-file.json-12345"
	for _, file := range []string{name, left, other} {
		if err := os.WriteFile(filepath.Join(string(folder), file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := folder.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := visible(t, string(folder)); len(got) != 2 || got[0] != other || got[1] != name {
		t.Errorf("left in the folder: %v, want %v", got, []string{other, name})
	}
}
