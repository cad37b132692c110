package local

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFreeKeepsWhatVolumesMayStillUse(t *testing.T) {
	for name, test := range map[string]struct {
		folder              Folder
		allocated, enforced int64
		want                int64
	}{
		"an empty disk":                               {Folder{Size: 100, Room: 90}, 0, 0, 90},
		"plain volumes count by their sizes":          {Folder{Size: 100, Room: 90}, 60, 0, 40},
		"enforced volumes count before they are full": {Folder{Size: 100, Room: 50}, 30, 30, 20},
		"more is promised than there is":              {Folder{Size: 100, Room: 20}, 30, 30, 0},
	} {
		if got := test.folder.Free(test.allocated, test.enforced); got != test.want {
			t.Errorf("%s: %d bytes are free, want %d", name, got, test.want)
		}
	}
}

func TestTheKindFollowsTheClassAndTheDisk(t *testing.T) {
	all := Folder{Quota: true, Image: true, Loop: true}
	for name, test := range map[string]struct {
		folder  Folder
		enforce string
		block   bool
		want    Kind
		why     string
	}{
		"quota where there is one":      {all, "", false, Quota, ""},
		"a folder where there is none":  {Folder{}, EnforceAuto, false, Plain, ""},
		"no enforcement on request":     {all, EnforceNone, false, Plain, ""},
		"an image":                      {all, EnforceImage, false, Image, ""},
		"no image without mkfs":         {Folder{Loop: true}, EnforceImage, false, "", "mkfs.ext4"},
		"no quota without mount option": {Folder{}, EnforceQuota, false, "", "prjquota"},
		"a device":                      {all, EnforceNone, true, Block, ""},
		"no device without loops":       {Folder{}, "", true, "", "no loop devices"},
		"an unknown value":              {all, "hard", false, "", `"hard": allowed are auto, quota, image and none`},
		"a folder in trouble":           {Folder{Trouble: "read-only"}, "", false, "", "read-only"},
	} {
		kind, why := test.folder.KindFor(test.enforce, test.block)
		if kind != test.want || !strings.Contains(why, test.why) || (kind == "") != (why != "") {
			t.Errorf("%s: kind %q, why %q", name, kind, why)
		}
	}
}

func testDisk(t *testing.T) disk {
	t.Helper()
	d := disk{t.TempDir()}
	t.Cleanup(func() {
		volumes, remains, _ := d.names()
		for _, name := range append(volumes, remains...) {
			if err := d.clear(name); err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

func canLoop() bool { return os.Geteuid() == 0 && haveLoops() && tool("mkfs.ext4") != "" }

func needLoops(t *testing.T) {
	t.Helper()
	if !canLoop() {
		t.Skip("needs root, loop devices and mkfs.ext4")
	}
}

func TestAVolumeIsMadeOnceAndKeepsItsContent(t *testing.T) {
	d := testDisk(t)
	w := wanted{name: "pvc-1", uid: "u1", kind: Plain, bytes: 4096}
	for range 2 {
		if err := d.make(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	path, err := d.prepare(w.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.uid = "u2"
	if err := d.make(t.Context(), w); err == nil || !strings.Contains(err.Error(), "data of another PersistentVolume") {
		t.Errorf("a volume of the same name got the data: %v", err)
	}
	if err := d.remove(w.name); err != nil {
		t.Fatal(err)
	}
	if gone, err := d.gone(w.name); !gone || err != nil {
		t.Errorf("after the removal: gone %v, %v", gone, err)
	}
	if _, err := d.prepare(w.name); err == nil || !strings.Contains(err.Error(), "is missing on this node") {
		t.Errorf("a volume that is gone can be attached: %v", err)
	}
}

func TestRemovalDoesNotFollowLinks(t *testing.T) {
	d := testDisk(t)
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.MkdirAll(filepath.Join(outside, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.make(t.Context(), wanted{name: "pvc-1", uid: "u", kind: Plain, bytes: 1}); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"absolute": outside, "relative": "../../../../../../.." + outside, "loop": "loop"} {
		if err := os.Symlink(to, d.at("pvc-1", dataDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.remove("pvc-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "sub")); err != nil {
		t.Errorf("the removal of a volume removed %s: %v", outside, err)
	}
}

func TestAnInterruptedStepIsClearedAtTheNextStart(t *testing.T) {
	d := testDisk(t)
	for _, dir := range []string{making + "pvc-1/data", removing + "pvc-2/data/deep", "pvc-3/data", "lost+found"} {
		if err := os.MkdirAll(d.at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := claimFolder(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, remains, _ := d.names(); len(remains) > 0 {
		t.Errorf("left: %v", remains)
	}
	if _, err := os.Stat(d.at("pvc-3/data")); err != nil {
		t.Error(err)
	}
	if _, err := claimFolder(d.path); err == nil || !strings.Contains(err.Error(), "another knarr") {
		t.Errorf("a second process got the folder: %v", err)
	}
}

func TestAnImageIsMadeGrownAndDetached(t *testing.T) {
	needLoops(t)
	d := testDisk(t)
	w := wanted{name: "pvc-image-1", uid: "u", kind: Image, bytes: 20 << 20}
	if err := d.make(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	path, err := d.prepare(w.name)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		t.Errorf("a new volume has %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.bytes = 40 << 20
	if err := d.make(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if path, err = d.prepare(w.name); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(path, "file")); err != nil || string(data) != "kept" {
		t.Errorf("after growth the file has %q, %v", data, err)
	}
	if err := os.WriteFile(filepath.Join(path, "large"), make([]byte, 25<<20), 0o600); err != nil {
		t.Errorf("the larger volume has no space: %v", err)
	}
	disk := d.at(w.name, diskFile)
	if device, err := attachedTo(disk); device == "" || err != nil {
		t.Errorf("a mounted image has the device %q, %v", device, err)
	}
	if err := d.remove(w.name); err != nil {
		t.Fatal(err)
	}
	if _, err := attachedTo(disk); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal: %v", err)
	}
}

func TestABlockVolumeKeepsItsDeviceUntilItIsRemoved(t *testing.T) {
	needLoops(t)
	d := testDisk(t)
	w := wanted{name: "pvc-block-1", uid: "u", kind: Block, bytes: 1 << 20}
	if err := d.make(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	first, err := d.prepare(w.name)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := d.prepare(w.name); err != nil || second != first {
		t.Errorf("the device was %s, is %s, %v", first, second, err)
	}
	if err := d.remove(w.name); err != nil {
		t.Fatal(err)
	}
	if info, err := loopInfo(first); err == nil && strings.Contains(string(info.File_name[:]), d.path) {
		t.Errorf("%s is still attached", first)
	}
}

func TestPurgeRemovesVolumesAndNothingElse(t *testing.T) {
	d := testDisk(t)
	list := filepath.Join(t.TempDir(), "list.json")
	a := New(Options{Folders: map[string]string{DefaultFolder: d.path}, List: list})
	for _, l := range a.open() {
		_ = l.file.Close()
	}
	if err := d.make(context.Background(), wanted{name: "pvc-1", uid: "u", kind: Plain, bytes: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.at("photos"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Purge(list); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(d.path)
	if len(left) != 1 || left[0].Name() != "photos" {
		t.Errorf("left: %v", left)
	}
}

func TestLabelsOfLongNodeNamesFit(t *testing.T) {
	long := strings.Repeat("a", 200)
	if l := LabelOf(long); len(l) > 63 || l == LabelOf(long+"b") {
		t.Errorf("the label is %q", l)
	}
	if l := LabelOf("one"); l != "one" {
		t.Errorf("the label is %q", l)
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(`{"folders":{"default":{"path":"/x","size":1,"room":1}},"volumes":{"pvc-1":{"state":"ready","bytes":1}}}`)
	f.Add(`{"folders":{"default":{"size":-1}}}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReport(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ReportAnnotation: text}}})
		if err != nil {
			return
		}
		for _, folder := range r.Folders {
			if folder.Free(0, 0) < 0 {
				t.Errorf("%q has %d free bytes", text, folder.Free(0, 0))
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"uid":"u","kind":"image","bytes":4096}`))
	f.Add([]byte(`{"kind":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parseRecord(data); err == nil && (!r.Kind.Known() || r.Bytes < 0) {
			t.Errorf("%q gave %+v", data, r)
		}
	})
}

func FuzzParseMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,prjquota\n")
	f.Add("1 2 - \n - \n")
	f.Fuzz(func(t *testing.T, content string) {
		for _, m := range parseMounts(content) {
			if m.kind == "" || m.point == "" {
				t.Errorf("%q gave %+v", content, m)
			}
		}
	})
}
