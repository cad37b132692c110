package volume

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

func TestProjectionsAreReadOnlyForContainers(t *testing.T) {
	b := newBench(t)
	b.cluster.put("configmaps", "cm", configMap(map[string]string{"a": "1"}))
	items := []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	p := pod(
		volume("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}),
		volume("downward", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}),
		volume("projected", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}}}}}),
		volume("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
	)
	points := b.mount(p)
	for name, want := range map[string]bool{"config": true, "downward": true, "projected": true, "scratch": false} {
		if points[name].ReadOnly != want {
			t.Errorf("volume %s: read-only %v", name, points[name].ReadOnly)
		}
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
}

// TestAProjectionIsNotLedOutOfItsFolder changes the folder as a privileged container could.
func TestAProjectionIsNotLedOutOfItsFolder(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir, victim string) error{
		"the data link leads out": func(t *testing.T, dir, victim string) error {
			out, err := filepath.Rel(dir, victim)
			if err != nil {
				return err
			}
			return os.Symlink(out, filepath.Join(dir, dataLink))
		},
		"the data link is absolute": func(t *testing.T, dir, victim string) error { return os.Symlink(victim, filepath.Join(dir, dataLink)) },
		"the data link is the parent": func(t *testing.T, dir, _ string) error {
			return os.Symlink("..", filepath.Join(dir, dataLink))
		},
		"a generation is a link that leads out": func(t *testing.T, dir, victim string) error {
			if err := os.Symlink(victim, filepath.Join(dir, "..generation")); err != nil {
				return err
			}
			return os.Symlink("..generation", filepath.Join(dir, dataLink))
		},
		"a file is a pipe": func(t *testing.T, dir, _ string) error {
			if err := os.Mkdir(filepath.Join(dir, "..generation"), 0o755); err != nil {
				return err
			}
			if err := unix.Mkfifo(filepath.Join(dir, "..generation", "a"), 0o666); err != nil {
				return err
			}
			return os.Symlink("..generation", filepath.Join(dir, dataLink))
		},
		"the temporary link is a folder": func(t *testing.T, dir, _ string) error {
			return os.MkdirAll(filepath.Join(dir, dataLink+"_tmp", "x"), 0o755)
		},
		"a name is a folder": func(t *testing.T, dir, _ string) error { return os.MkdirAll(filepath.Join(dir, "old", "x"), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir, victim := filepath.Join(top, "volumes", "config"), filepath.Join(top, "victim")
			for _, path := range []string{dir, victim} {
				if err := os.MkdirAll(path, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			precious := filepath.Join(victim, "a")
			if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := spoil(t, dir, victim); err != nil {
				t.Fatal(err)
			}
			write := func(value string) {
				t.Helper()
				if err := writeAtomic(dir, payload{"a": {data: []byte(value), mode: 0o644}}, time.Now(), nil); err != nil {
					t.Fatal(err)
				}
				if got := content(t, dir); len(got) != 1 || got["a"] != value {
					t.Errorf("the volume shows %q", got)
				}
			}
			write("1")
			write("2")
			if kept, err := os.ReadFile(precious); string(kept) != "precious" {
				t.Errorf("a file outside of the volume is %q, %v", kept, err)
			}
			if mode, _ := perm(t, precious); mode != 0o600 {
				t.Errorf("a file outside of the volume has mode %v", mode)
			}
		})
	}
}

// TestOwnershipDoesNotFollowLinksThatAppear replaces a folder and a file by links that lead out of
// the volume while ownership is being set.
func TestOwnershipDoesNotFollowLinksThatAppear(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	top := t.TempDir()
	outside, dir := filepath.Join(top, "outside"), filepath.Join(top, "volume")
	for _, path := range []string{filepath.Join(outside, "folder"), filepath.Join(dir, "folder"), filepath.Join(dir, "links")} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"folder", "folder/file", "file"}
	for _, base := range []string{outside, dir} {
		for _, name := range names[1:] {
			if err := os.WriteFile(filepath.Join(base, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"folder", "file"} {
		if err := os.Symlink(filepath.Join(outside, name), filepath.Join(dir, "links", name)); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			for _, name := range []string{"folder", "file"} {
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, name), unix.AT_FDCWD, filepath.Join(dir, "links", name), unix.RENAME_EXCHANGE)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 500 {
		if err := giveToGroup(dir, 4711, false); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	swapping.Wait()
	for _, name := range names {
		if mode, stat := perm(t, filepath.Join(outside, name)); stat.Gid == 4711 || mode&0o077 != 0 {
			t.Fatalf("%s outside of the volume has group %d and mode %v", name, stat.Gid, mode)
		}
	}
}

func TestOwnershipIsGivenToEverythingAndNamesWhatIsTooDeep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(deep, "file")
	if err := os.WriteFile(file, nil, 0o4700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o700|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(deep, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := giveToGroup(dir, 4711, true); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{deep: 0o750 | os.ModeSetgid, file: 0o740 | os.ModeSetuid, filepath.Join(deep, "pipe"): 0o640 | os.ModeNamedPipe} {
		if mode, stat := perm(t, path); mode != want || stat.Gid != 4711 {
			t.Errorf("%s: mode %v, group %d, want mode %v", path, mode, stat.Gid, want)
		}
	}
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range maxDepth + 2 { // deeper than any path name can be
		if err := at.Mkdir("d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	at.Close()
	if err := giveToGroup(dir, 4711, false); err == nil || !strings.Contains(err.Error(), "more than 1000 folders deep") {
		t.Errorf("error %v", err)
	}
}
