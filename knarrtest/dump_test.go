package knarrtest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/knarr-project/knarr/knarrtest"
)

func TestADumpShowsTheTestsObjects(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithCRDs(file(t, "ships.yaml", shipsCRD)), knarrtest.WithoutScheduler())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, StringData: map[string]string{"password": "hunter2"}}
	if _, err := clientset(t, c).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resource(ships).Namespace("default").Create(t.Context(), ship("vasa"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Dump(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"name: key", "password: left out", "name: vasa", "kind: Ship"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"hunter2", "aHVudGVyMg", "managedFields", "kube-root-ca.crt", "kind: ClusterRole"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q is in\n%s", unwanted, text)
		}
	}
}

// failing is a test that has failed.
type failing struct {
	testing.TB
	cleanups []func()
	log      strings.Builder
}

func (f *failing) Cleanup(fn func())             { f.cleanups = append(f.cleanups, fn) }
func (f *failing) Failed() bool                  { return true }
func (f *failing) Logf(format string, a ...any)  { fmt.Fprintf(&f.log, format+"\n", a...) }
func (f *failing) Name() string                  { return "TestA/b c" }
func (f *failing) end(between func(text string)) { f.cleanups[0](); between(f.log.String()) }

func TestAFailedTestShowsItsObjects(t *testing.T) {
	for _, folder := range []string{"", t.TempDir()} {
		t.Setenv("KNARRTEST_DUMP", folder)
		f := &failing{TB: t}
		c := knarrtest.Start(f, knarrtest.WithoutControllers(), knarrtest.WithoutScheduler())
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "evidence"}}
		if _, err := clientset(t, c).CoreV1().ConfigMaps("default").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.end(func(text string) {
			if folder != "" {
				content, err := os.ReadFile(filepath.Join(folder, "TestA_b_c.yaml"))
				if err != nil || strings.Contains(text, "evidence") {
					t.Errorf("%v, log\n%s", err, text)
				}
				text = string(content)
			}
			if !strings.Contains(text, "name: evidence") {
				t.Errorf("with the folder %q:\n%s", folder, text)
			}
		})
		if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
			t.Errorf("the cluster's folder: %v", err)
		}
	}
}
