package knarrtest_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/knarrtest"
)

// space is a cluster whose store is filled with config maps.
type space struct {
	t       *testing.T
	cluster *knarrtest.Cluster
	client  kubernetes.Interface
	made    int
}

func newSpace(t *testing.T, opts ...knarrtest.Option) *space {
	c := knarrtest.Start(t, append(opts, knarrtest.WithNodes(1))...)
	cfg := c.Config()
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &space{t: t, cluster: c, client: client}
}

func (s *space) create() error {
	data := fmt.Sprintf("%0*d", 500<<10, s.made)
	_, err := s.client.CoreV1().ConfigMaps("default").Create(s.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", s.made), Finalizers: []string{"example.com/hold"}},
		Data:       map[string]string{"k": data},
	}, metav1.CreateOptions{})
	if err == nil {
		s.made++
	}
	return err
}

// refused creates config maps until the server refuses one, and returns the answer.
func (s *space) refused() *metav1.Status {
	for range 1000 {
		err := s.create()
		var status apierrors.APIStatus
		switch {
		case err == nil:
		case errors.As(err, &status):
			answer := status.Status()
			return &answer
		default:
			s.t.Fatal(err)
		}
	}
	s.t.Fatal("nothing is refused")
	return nil
}

func (s *space) eventually(what string, fn func() error) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = fn(); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: %v", what, err)
}

// beats waits until the node has renewed its lease twice.
func (s *space) beats() {
	var last time.Time
	renewed := 0
	s.eventually("the node does not renew its lease", func() error {
		lease, err := s.client.CoordinationV1().Leases("kube-node-lease").Get(s.t.Context(), "node-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if at := lease.Spec.RenewTime.Time; at.After(last) {
			last = at
			renewed++
		}
		if renewed < 3 {
			return fmt.Errorf("renewed at %s", last)
		}
		return nil
	})
}

func (s *space) ready() error {
	return s.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(s.t.Context()).Error()
}

func TestAClusterAtItsQuotaComesBack(t *testing.T) {
	s := newSpace(t, knarrtest.WithFlags("--store-quota=32Mi"))
	answer := s.refused()
	t.Logf("after %d objects: %d %s", s.made, answer.Code, answer.Message)
	if answer.Code != http.StatusInternalServerError || !strings.HasPrefix(answer.Message, "etcdserver: mvcc: database space exceeded: ") || !strings.Contains(answer.Message, "--store-quota") {
		t.Errorf("the answer is %+v", answer)
	}
	s.beats()
	if err := s.ready(); err != nil {
		t.Errorf("/readyz: %v", err)
	}
	maps := s.client.CoreV1().ConfigMaps("default")
	for i := range s.made { // a deletion, then the end of the finalizer
		name := fmt.Sprintf("c%d", i)
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	for i := range s.made {
		s.eventually("the finalizer stays", func() error {
			_, err := maps.Patch(t.Context(), fmt.Sprintf("c%d", i), "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		})
	}
	s.eventually("no creation after the deletions", s.create)
}

// smallDisk is the folder of a small file system, set in the child process of a test.
const smallDisk = "KNARR_SMALL_DISK"

func TestAClusterOnAFullDiskComesBack(t *testing.T) {
	dir := os.Getenv(smallDisk)
	if dir == "" {
		if os.Getuid() != 0 {
			t.Skip("only root can mount a small file system")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Skip("cannot mount a tmpfs:", err)
	}
	s := newSpace(t, knarrtest.OnDisk(filepath.Join(dir, "data")))
	if err := s.create(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	answer := s.refused()
	t.Logf("%d %s", answer.Code, answer.Message)
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Message, filepath.Join(dir, "data", "etcd")) || !strings.Contains(answer.Message, "MiB free") {
		t.Errorf("the answer is %+v", answer)
	}
	time.Sleep(5 * time.Second) // batches are written, the node tries to renew its lease
	if err := s.ready(); err != nil {
		t.Errorf("/readyz: %v", err)
	}
	if _, err := s.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a list: %v", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		t.Fatal(err)
	}
	s.eventually("no creation after there is space", s.create)
	s.beats()
}
