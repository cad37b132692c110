package ui

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/knarrtest"
)

// podsPerNode is the number of pods that a hollow node of the measurement runs.
const podsPerNode = 100

// TestMeasure prints figures; it asserts none, since they depend on the machine. KNARR_UI_MEASURE
// is the number of pods.
func TestMeasure(t *testing.T) {
	total, _ := strconv.Atoi(os.Getenv("KNARR_UI_MEASURE"))
	if total == 0 {
		t.Skip("KNARR_UI_MEASURE is not the number of pods")
	}
	c := knarrtest.Start(t, knarrtest.WithNodes((total+podsPerNode-1)/podsPerNode))
	k := clientset(t, c.Config())
	var group sync.WaitGroup
	for worker := range 16 {
		group.Go(func() {
			for i := worker; i < total; i += 16 {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i), Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%50)}},
					Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i/podsPerNode), Containers: []corev1.Container{{Name: "main", Image: "registry.example/app:1"}}},
				}
				if _, err := k.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	awaitRunning(t, k, total)
	b := openBrowser(t)
	b.logIn(c.Config())
	b.shows("Running")

	// From the navigation to the first rows, and to all of them, by the page's own clock.
	const settled = `document.querySelector('.grid')?.getAttribute('aria-busy') === 'false'`
	b.do(chromedp.Navigate(c.Config().Host + "/ui/#/list/core/pods"))
	b.do(chromedp.Reload())
	b.until("the rows", `document.querySelector('.grid-space .grid-row')`)
	t.Logf("the first rows are seen %.0f ms after the navigation began, at the latest", eval[float64](b, `performance.now()`))
	b.until("all rows", settled)
	t.Logf("all %d rows are there after %.0f ms, at the latest", total, eval[float64](b, `performance.now()`))
	t.Logf("rows in the document: %d; JavaScript's memory: %.1f MB", eval[int](b, `document.querySelectorAll('.grid-space .grid-row').length`), eval[float64](b, `performance.memory.usedJSHeapSize / 1e6`))

	// From a write to the frame that shows it: the page notes when the label's row is drawn.
	var longest, sum time.Duration
	const rounds = 20
	for i := range rounds {
		status := fmt.Sprintf("Measured%d", i)
		eval[any](b, `void (window.seen = new Promise((done) => { const look = () => document.querySelector('.grid-space .grid-row')?.textContent.includes(`+quote(status)+`) ? requestAnimationFrame(() => done(Date.now())) : requestAnimationFrame(look); look(); }))`)
		began := time.Now()
		patch := []byte(`{"status":{"reason":"` + status + `"}}`)
		if _, err := k.CoreV1().Pods("default").Patch(t.Context(), "pod-00000", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		took := time.UnixMilli(int64(eval[float64](b, `window.seen`))).Sub(began)
		sum += took
		longest = max(longest, took)
	}
	t.Logf("a change is drawn %v after its write began, on average of %d; at most %v", sum/rounds, rounds, longest)
	b.press("/")
	t.Logf("a filter of one row takes %.0f ms", eval[float64](b, `(() => { const f = document.getElementById('filter'); f.value = 'pod-00007'; const began = performance.now(); f.dispatchEvent(new Event('input')); document.querySelector('.grid').offsetHeight; return performance.now() - began; })()`))
}

// awaitRunning waits until all pods run.
func awaitRunning(t *testing.T, k kubernetes.Interface, total int) {
	t.Helper()
	for end := time.Now().Add(10 * patience); ; time.Sleep(time.Second) {
		list, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) >= total {
			return
		}
		if time.Now().After(end) {
			t.Fatal("not all pods run")
		}
	}
}
