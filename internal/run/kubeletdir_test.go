package run

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
)

func kubeletDirs(t *testing.T) (*config.Config, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	top := t.TempDir()
	cfg := &config.Config{DataDir: filepath.Join(top, "data"), KubeletDir: filepath.Join(top, "kubelet")}
	t.Cleanup(func() {
		for unix.Unmount(cfg.KubeletDir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
			continue
		}
	})
	return cfg, cfg.KubeletDir
}

func TestTheKubeletsFolderShowsTheDataFoldersUntilItIsPurged(t *testing.T) {
	cfg, want := kubeletDirs(t)
	for range 2 { // a second start keeps the mount
		got, err := kubeletDir(cfg, slog.Default())
		if err != nil || got != want {
			t.Fatal(got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(want, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.Path("kubelet", "x")); err != nil {
		t.Errorf("the file is not in the data folder: %v", err)
	}
	if err := releaseKubeletDir(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(want); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", want, err)
	}
	if _, err := os.Stat(cfg.Path("kubelet", "x")); err != nil {
		t.Errorf("releasing the folder removed its content: %v", err)
	}
}

func TestAFolderOfAnotherKubeletIsNotTaken(t *testing.T) {
	cfg, want := kubeletDirs(t)
	if err := os.MkdirAll(filepath.Join(want, "pki"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(want, "pki", "kubelet.crt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeletDir(cfg, slog.Default()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error is %v, want the file's name", err)
	}
	other := &config.Config{DataDir: cfg.DataDir}
	if got, err := kubeletDir(other, slog.Default()); err != nil || got != other.Path("kubelet") {
		t.Errorf("without the setting, the folder is %s (%v)", got, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, err := kubeletDir(cfg, slog.Default()); err != nil || got != want {
		t.Errorf("a folder without files is not taken: %s, %v", got, err)
	}
}

func TestTheFolderOfARemovedClusterIsFree(t *testing.T) {
	cfg, want := kubeletDirs(t)
	if _, err := kubeletDir(cfg, slog.Default()); err != nil {
		t.Fatal(err)
	}
	second := &config.Config{DataDir: cfg.DataDir + "-2", KubeletDir: want}
	if _, err := kubeletDir(second, slog.Default()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("two clusters have one folder: %v", err)
	}
	if err := os.RemoveAll(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	if got, err := kubeletDir(second, slog.Default()); err != nil || got != want {
		t.Errorf("the folder is %s (%v)", got, err)
	}
}
