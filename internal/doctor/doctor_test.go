package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
)

func TestEachCheckDistinguishesGoodFromBad(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		got   Finding
		level Level
	}{
		"root":                           {checkRoot(0), Fine},
		"another user":                   {checkRoot(1000), Broken},
		"CAP_SYS_ADMIN":                  {checkSysAdmin(1 << unix.CAP_SYS_ADMIN), Fine},
		"no CAP_SYS_ADMIN":               {checkSysAdmin(1 << unix.CAP_NET_ADMIN), Broken},
		"CAP_NET_ADMIN":                  {checkNetAdmin(1 << unix.CAP_NET_ADMIN), Fine},
		"no CAP_NET_ADMIN":               {checkNetAdmin(0), Broken},
		"no CAP_SYS_RESOURCE":            {checkSysResource(0), Degraded},
		"overlay":                        {checkOverlay(file("nodev\tproc\nnodev\toverlay\n")), Fine},
		"no overlay":                     {checkOverlay(file("nodev\tproc\n")), Degraded},
		"forwarding on":                  {checkForwarding(file("1\n")), Fine},
		"forwarding that can be set":     {checkForwarding(file("0\n")), Fine},
		"no IP":                          {checkForwarding(none), Broken},
		"nftables":                       {checkNftables(func() error { return nil }), Fine},
		"no nftables":                    {checkNftables(func() error { return unix.EPROTONOSUPPORT }), Broken},
		"many inotify instances":         {checkInotify(file("8192\n")), Fine},
		"few inotify instances":          {checkInotify(file("128\n")), Degraded},
		"default route":                  {checkRoute(file("Iface\tDestination\neth0\t00000000\t0100000A\n")), Fine},
		"no default route":               {checkRoute(file("Iface\tDestination\neth0\t0000000A\t00000000\n")), Degraded},
		"much space":                     {judgeSpace("/d", 50e9, 100e9), Fine},
		"little space":                   {judgeSpace("/d", 5e9, 100e9), Degraded},
		"no space":                       {judgeSpace("/d", 1e6, 100e9), Broken},
		"a data folder that can be made": {checkDataFolder(filepath.Join(t.TempDir(), "a", "b")), Fine},
		"a data folder below a file":     {checkDataFolder(filepath.Join(file(""), "data")), Broken},
		"a run folder that can be made":  {checkRunFolder(filepath.Join(t.TempDir(), "run")), Fine},
	} {
		t.Run(name, func(t *testing.T) {
			// This machine's disk may be full.
			free := name == "a data folder that can be made" && c.got.Level == Degraded
			if c.got.Level != c.level && !free {
				t.Errorf("found %+v, want %s", c.got, c.level)
			}
			if (c.got.Level == Fine) != (c.got.Remedy == "") {
				t.Errorf("level and remedy do not fit: %+v", c.got)
			}
		})
	}
}

func TestFoldersOnReadOnlyAndNoexecFileSystems(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	mounted := func(flags uintptr) string {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", flags, ""); err != nil {
			t.Skip("cannot mount: ", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	if f := checkDataFolder(filepath.Join(mounted(unix.MS_RDONLY), "data")); f.Level != Broken || !strings.Contains(f.Remedy, "remount,rw") {
		t.Errorf("read-only: %+v", f)
	}
	if f := checkPrograms(filepath.Join(mounted(unix.MS_NOEXEC), "data")); f.Level != Broken || !strings.Contains(f.Remedy, "exec") {
		t.Errorf("noexec: %+v", f)
	}
}

func TestAPortIsFreeOrItsProcessIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	data := t.TempDir()
	f := checkPort("listen", address, data)
	if f.Level != Broken || !strings.Contains(f.Found, fmt.Sprintf("process %d", os.Getpid())) || !strings.Contains(f.Remedy, "--listen") {
		t.Errorf("a port of another process: %+v", f)
	}
	// Listening on all addresses conflicts with it, too.
	_, port, _ := net.SplitHostPort(address)
	if f := checkPort("listen", "0.0.0.0:"+port, data); f.Level != Broken || !strings.Contains(f.Found, strconv.Itoa(os.Getpid())) {
		t.Errorf("every address: %+v", f)
	}
	lock, err := os.Create(filepath.Join(data, LockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := fmt.Fprint(lock, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if f := checkPort("listen", address, data); f.Level != Fine || !strings.Contains(f.Found, "in use by this cluster") {
		t.Errorf("the data folder's own process: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if f := checkPort("listen", address, data); f.Level != Fine || f.Found != "free" {
		t.Errorf("a free port: %+v", f)
	}
	if f := checkPort("listen", "192.0.2.1:6443", data); f.Level != Broken || !strings.Contains(f.Found, "does not have the address") {
		t.Errorf("an address of another machine: %+v", f)
	}
}

func TestALockFileOfAProcessThatHasEndedHasNoHolder(t *testing.T) {
	data := t.TempDir()
	if pid := Holder(data); pid != 0 {
		t.Errorf("without a lock file: %d", pid)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Skip(err)
	}
	// The second process is alive but does not use the folder.
	for _, pid := range []int{ended.Process.Pid, os.Getpid()} {
		if err := os.WriteFile(filepath.Join(data, LockFile), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Holder(data); got != 0 {
			t.Errorf("the holder is %d", got)
		}
	}
}

func TestARefusalNamesAllMissingRequirementsAndRemedies(t *testing.T) {
	findings := []Finding{{Fine, "root", "yes", ""}, {Broken, "cgroups", "none", "mount them"}, {Degraded, "inotify", "12 instances", "sysctl"}, {Broken, "port", "taken", "choose another"}}
	err := Refuse(findings)
	var refusal Refusal
	if !errors.As(err, &refusal) || len(refusal) != 2 {
		t.Fatalf("refusal: %v", err)
	}
	for _, want := range []string{"cgroups: none", "mount them", "port: taken", "choose another"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if got := Remarks(findings); !strings.Contains(got, "inotify: 12 instances") || strings.Contains(got, "\n") {
		t.Errorf("remarks: %q", got)
	}
	if err := Refuse(findings[:1]); err != nil || Remarks(findings[:1]) != "" {
		t.Errorf("without faults: %v, %q", err, Remarks(findings[:1]))
	}
}

// Each role runs only the checks that it needs.
func TestAServerNeedsLessThanANode(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.KubeletListen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", "127.0.0.1:0"
	cfg.RunDir, cfg.CgroupRoot = filepath.Join(t.TempDir(), "run"), fmt.Sprintf("/knarr-doctor-%d", os.Getpid())
	names := func(roles Role) string {
		var all []string
		for _, f := range Examine(&cfg, roles) {
			all = append(all, f.What)
		}
		return strings.Join(all, ", ")
	}
	if got := names(Server); got != "data folder, store, port 127.0.0.1:0" {
		t.Errorf("a server: %s", got)
	}
	if got := names(Proxy); got != "root, CAP_NET_ADMIN, nftables" {
		t.Errorf("a proxy: %s", got)
	}
	if got := names(Node); !strings.Contains(got, "cgroups") || strings.Contains(got, "programs") {
		t.Errorf("a node with another runtime: %s", got)
	}
	if entries, err := os.ReadDir(filepath.Dir(cfg.DataDir)); err != nil || len(entries) > 0 {
		t.Errorf("left are %v, %v", entries, err)
	}
}
