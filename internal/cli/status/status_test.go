package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/clusters"
)

func TestReadyzIsParsed(t *testing.T) {
	for name, tt := range map[string]struct {
		code           int
		body           string
		passed, failed int
		fails          bool
	}{
		"all pass":      {200, "[+]ping ok\n[+]etcd ok\nreadyz check passed\n", 2, 0, false},
		"one fails":     {500, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n", 1, 1, false},
		"another error": {403, "forbidden", 0, 0, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.code)
			fmt.Fprint(w, tt.body)
		}))
		passed, failed, err := checks(t.Context(), &rest.Config{Host: server.URL})
		server.Close()
		if len(passed) != tt.passed || len(failed) != tt.failed || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %q, %v", name, passed, failed, err)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsNotHealthy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "[+]ping ok\n[-]etcd failed: reason withheld\n")
	}))
	defer server.Close()
	r := &Report{}
	if r.readyz(t.Context(), &clusters.Record{Role: "up"}, &rest.Config{Host: server.URL}) {
		t.Error("the server counts as ready")
	}
	if len(r.Parts) != 2 || r.Parts[0].Health != Bad || r.Parts[1].Name != "store" || r.Parts[1].Health != Bad {
		t.Errorf("%+v", r.Parts)
	}
}

func TestAnUnreachableServerIsNotHealthy(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	r := &Report{}
	r.readyz(t.Context(), &clusters.Record{Role: "up"}, &rest.Config{Host: server.URL})
	if len(r.Parts) != 1 || r.Parts[0].Health != Bad || !strings.Contains(r.Parts[0].Text, "nothing listens") {
		t.Errorf("%+v", r.Parts)
	}
	if text := whyUnreachable(context.DeadlineExceeded); !strings.Contains(text, "no answer") {
		t.Errorf("%s", text)
	}
	if text := whyUnreachable(errors.New("a\nb")); text != "a b" {
		t.Errorf("%q", text)
	}
}

func TestExpiringCertificatesAreReported(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		left   time.Duration
		health Health
		text   string
	}{
		"a year":    {365 * 24 * time.Hour, Fine, "in 365 days"},
		"ten days":  {10 * 24 * time.Hour, Fine, "(soon)"},
		"yesterday": {-24 * time.Hour, Bad, "expired on"},
	} {
		p := certificatePart([]Certificate{{"admin", now.Add(tt.left)}, {"ca", now.Add(3650 * 24 * time.Hour)}}, now)
		if p.Health != tt.health || !strings.Contains(p.Text, tt.text) || !strings.Contains(p.Text, "admin") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := certificatePart(nil, now); p.Health != Unknown {
		t.Errorf("%+v", p)
	}
}

func TestCertificatesAreFoundBesideTheirKeys(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"ca.crt": string(certPEM), "node.pem": string(keyPEM) + string(certPEM), "other.pem": string(keyPEM), "admin.key": string(keyPEM)} {
		if err := os.WriteFile(filepath.Join(dir, "pki", name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, c := range certificates(dir) {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "ca node" {
		t.Errorf("found are %s", got)
	}
	// A worker's own identity is one file.
	config, err := access(&clusters.Record{DataDir: dir, Role: "node", Join: "https://192.0.2.1:6443"})
	if err != nil {
		t.Fatal(err)
	}
	config.CAFile = filepath.Join(dir, "pki", "ca.crt")
	if _, err := rest.TLSConfigFor(config); err != nil {
		t.Error(err)
	}
}

func TestADiskThatIsNearlyFullIsNotHealthy(t *testing.T) {
	if p := diskPart(Disk{Free: 5e9, Total: 100e9}); p.Health != Bad {
		t.Errorf("%+v", p)
	}
	if p := diskPart(Disk{Free: 50e9, Total: 100e9}); p.Health != Fine || p.Text != "50.0 GB of 100.0 GB are free" {
		t.Errorf("%+v", p)
	}
}

func TestDiskUsageCountsLinksOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	d := disk(dir)
	if d.Folder < 1<<20 || d.Folder > 3<<19 || d.Partial || d.Total == 0 {
		t.Errorf("%+v", d)
	}
	if d := disk(filepath.Join(dir, "none")); d.Folder != 0 {
		t.Errorf("a missing folder has %+v", d)
	}
}

func TestTheRuntimesPIDComesFromItsRecord(t *testing.T) {
	dir := t.TempDir()
	if pid := runtimePID(dir); pid != 0 {
		t.Errorf("without a record it is %d", pid)
	}
	identity, err := clusters.Identity(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for started, want := range map[string]int{identity: os.Getpid(), "another boot 1": 0} {
		text := fmt.Sprintf(`{"pid": %d, "startTime": %q}`, os.Getpid(), started)
		if err := os.WriteFile(filepath.Join(dir, "containerd.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if pid := runtimePID(dir); pid != want {
			t.Errorf("%s: %d, want %d", started, pid, want)
		}
	}
	if rss, private := memory(os.Getpid()); rss == 0 || private == 0 || private > rss {
		t.Errorf("memory %d, %d", rss, private)
	}
}

func TestACrashIsReportedWithTheEndOfItsLog(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &clusters.Record{DataDir: dir, Name: "a", Role: "up", PID: ended.Process.Pid, Process: "b 1", Started: time.Now(), Detached: true, Listen: "0.0.0.0:6443"}
	if err := os.WriteFile(r.Log(), []byte("first\npanic: boom\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := Collect(t.Context(), r, time.Now())
	if report.State != clusters.Crashed || report.Healthy || report.PID != 0 || strings.Join(report.LogTail, "|") != "first|panic: boom" {
		t.Errorf("%+v", report)
	}
	r.PID = 0
	if report := Collect(t.Context(), r, time.Now()); report.State != clusters.Stopped || len(report.LogTail) > 0 {
		t.Errorf("a requested stop: %+v", report)
	}
}

// A running process whose API server cannot be reached is unhealthy.
func TestARunningProcessWithoutAnAPIServerIsNotHealthy(t *testing.T) {
	identity, err := clusters.Identity(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	r := &clusters.Record{
		DataDir: t.TempDir(), Name: "a", Role: "up", PID: os.Getpid(), Process: identity, Started: time.Now(), Ready: time.Now(),
		Listen: gone.Listener.Addr().String(), RunDir: t.TempDir(),
	}
	report := Collect(t.Context(), r, time.Now())
	if report.State != clusters.Running || report.Healthy || len(report.Processes) != 1 {
		t.Errorf("%+v", report)
	}
	health := map[string]Health{}
	for _, p := range report.Parts {
		health[p.Name] = p.Health
	}
	if health["API server"] != Bad || health["container runtime"] != Bad || health["controllers"] != Unknown {
		t.Errorf("%v", health)
	}
}
