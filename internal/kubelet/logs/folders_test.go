package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, path, content string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		t.Errorf("%s has %q, %v; want %q", path, got, err, content)
	}
}

func missing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", path, err)
	}
}

func pod(name, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
}

func TestLogsMoveToAnotherFolderAndTheirEarlierNamesWork(t *testing.T) {
	root, shared := t.TempDir(), filepath.Join(t.TempDir(), "pods")
	own := filepath.Join(root, "logs")
	put(t, filepath.Join(root, "pods", "u1", "etc-hosts"), "")
	put(t, filepath.Join(own, "default_a_u1", "c", "0.log"), "line")
	put(t, filepath.Join(shared, "default_b_u2", "c", "0.log"), "another node's")

	if _, err := Open(root, shared); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(filepath.Join(shared, "default_a_u1")); err != nil || !st.IsDir() {
		t.Fatalf("the pod's folder did not move: %v", err)
	}
	expect(t, filepath.Join(own, "default_a_u1", "c", "0.log"), "line")

	f, err := Open(root, own) // and back
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(filepath.Join(own, "default_a_u1")); err != nil || !st.IsDir() {
		t.Fatalf("the pod's folder did not move back: %v", err)
	}
	expect(t, filepath.Join(shared, "default_a_u1", "c", "0.log"), "line")
	if err := f.Remove(pod("a", "u1")); err != nil {
		t.Fatal(err)
	}
	missing(t, filepath.Join(own, "default_a_u1"))
	missing(t, filepath.Join(shared, "default_a_u1"))
	expect(t, filepath.Join(shared, "default_b_u2", "c", "0.log"), "another node's")
}

func TestAMoveThatWasInterruptedIsRepeated(t *testing.T) {
	root, shared := t.TempDir(), filepath.Join(t.TempDir(), "pods")
	put(t, filepath.Join(root, "pods", "u1", "etc-hosts"), "")
	put(t, filepath.Join(root, "logs", "default_a_u1", "c", "0.log"), "line")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(shared, "default_a_u1")
	if err := os.Symlink(half, half); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root, shared); err != nil {
		t.Fatal(err)
	}
	expect(t, filepath.Join(half, "c", "0.log"), "line")
	expect(t, filepath.Join(root, "logs", "default_a_u1", "c", "0.log"), "line")
}

func TestLinksFollowTheirLogs(t *testing.T) {
	root := t.TempDir()
	f, err := Open(root, filepath.Join(root, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	log := func(name string) string { return filepath.Join(f.Pod(pod(name, "u-"+name)), "c", "0.log") }
	link := func(name string) string { return filepath.Join(f.Links, name+"_default_c-id.log") }
	for _, name := range []string{"stays", "gone", "rotated"} {
		put(t, log(name), name)
		if err := f.Link(types.NamespacedName{Namespace: "default", Name: name}, "c", "id", log(name)); err != nil {
			t.Fatal(err)
		}
		expect(t, link(name), name)
	}
	foreign := filepath.Join(f.Links, "foreign_default_c-id.log")
	if err := os.Symlink("/nonexistent/0.log", foreign); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "rotated"} {
		if err := os.Remove(log(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sweep(map[string]bool{"rotated_default_c-id.log": true}); err != nil {
		t.Fatal(err)
	}
	missing(t, link("gone"))
	expect(t, link("stays"), "stays")
	for _, path := range []string{link("rotated"), foreign} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was removed: %v", path, err)
		}
	}
	for range 2 {
		if err := f.Unlink(types.NamespacedName{Namespace: "default", Name: "rotated"}, "c", "id"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(link("rotated")); !os.IsNotExist(err) {
		t.Errorf("the link was not removed: %v", err)
	}
	if err := f.Remove(pod("stays", "u-stays")); err != nil {
		t.Fatal(err)
	}
	missing(t, link("stays"))
}

func TestALongLinkNameIsCut(t *testing.T) {
	long := strings.Repeat("p", 240)
	name := LinkName(types.NamespacedName{Namespace: "default", Name: long}, "container", "id")
	if len(name) != 255 || !strings.HasPrefix(name, long+"_default_co") || !strings.HasSuffix(name, ".log") {
		t.Errorf("%d bytes: %s", len(name), name)
	}
}

func TestPurgeRemovesOurLogsOnly(t *testing.T) {
	root, shared := t.TempDir(), filepath.Join(t.TempDir(), "pods")
	put(t, filepath.Join(root, "pods", "u1", "etc-hosts"), "")
	if err := os.WriteFile(filepath.Join(root, record), []byte(filepath.Join(root, "logs")+"\n"+shared+"\n/\nrelative\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(shared, "default_a_u1", "c", "0.log"), "ours")
	put(t, filepath.Join(shared, "default_b_u2", "c", "0.log"), "another node's")
	put(t, filepath.Join(shared, "u1"), "no pod's")
	if err := Purge(root); err != nil {
		t.Fatal(err)
	}
	missing(t, filepath.Join(shared, "default_a_u1"))
	expect(t, filepath.Join(shared, "default_b_u2", "c", "0.log"), "another node's")
	expect(t, filepath.Join(shared, "u1"), "no pod's")
}
