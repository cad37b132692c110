package ui

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
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

	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: observer})
	for place, drawn := range map[string]string{
		"#/overview":       `[...document.querySelectorAll('.tile li')].some((li) => /^Running/.test(li.textContent))`,
		"#/list/core/pods": `document.querySelector('.grid-space .grid-row')`,
	} {
		b.load(t, c.Config().Host+"/ui/"+place, place, drawn)
	}

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

// observer keeps what Lighthouse computes its figures from.
const observer = `window.seen = {paint: 0, largest: 0, long: []};
new PerformanceObserver((l) => l.getEntries().forEach((e) => { if (e.name === 'first-contentful-paint') seen.paint = e.startTime; })).observe({type: 'paint', buffered: true});
new PerformanceObserver((l) => l.getEntries().forEach((e) => { seen.largest = e.startTime; })).observe({type: 'largest-contentful-paint', buffered: true});
new PerformanceObserver((l) => l.getEntries().forEach((e) => seen.long.push([e.startTime, e.duration]))).observe({type: 'longtask', buffered: true});
seen.drawn = new Promise((done) => { seen.isDrawn = () => done(performance.now()); });`

// load prints the figures of one load without the browser's cache: first and largest contentful
// paint, when the content is drawn, time to interactive, and total blocking time.
//
// Interactive is when five seconds without a task of more than 50 ms begin, as Lighthouse has it;
// requests in progress do not count, since watches never end.
func (b *browser) load(t *testing.T, url, place, drawn string) {
	t.Helper()
	call(b, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	b.do(chromedp.Navigate("about:blank"))
	b.do(chromedp.Navigate(url))
	at := eval[float64](b, `new Promise((done) => { const look = () => (`+drawn+`) ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look); look(); })`)
	figures := eval[[]float64](b, `new Promise((done) => { const look = () => {
		const last = seen.long.reduce((n, [s, d]) => Math.max(n, s + d), seen.paint);
		if (performance.now() - last < 5000) return setTimeout(look, 100);
		done([seen.paint, seen.largest, last, seen.long.reduce((n, [, d]) => n + Math.max(0, d - 50), 0), seen.long.reduce((n, [, d]) => Math.max(n, d), 0)]);
	}; look(); })`)
	t.Logf("tasks of more than 50 ms, with their start: %s", eval[string](b, `seen.long.map(([s, d]) => Math.round(s) + '+' + Math.round(d)).join(' ')`))
	protocols := eval[string](b, `[...new Set(performance.getEntriesByType('resource').map((e) => e.nextHopProtocol))].join()`)
	t.Logf("%s: first paint %.0f ms, largest paint %.0f ms, content %.0f ms, interactive %.0f ms, blocked %.0f ms, longest task %.0f ms, by %s", place, figures[0], figures[1], at, figures[2], figures[3], figures[4], protocols)
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
