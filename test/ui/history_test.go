package ui

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/chromedp/chromedp/kb"

	"github.com/knarr-project/knarr/knarrtest"
)

func TestThePageShowsWhatHappened(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(2), knarrtest.WithFate(fates))
	k := clientset(t, c.Config())
	shop(t, k)
	b := openBrowser(t)
	b.dark(false)
	b.logIn(c.Config())
	if eval[int](b, `fetch('/insight/v1/timeline', {headers: {'X-Knarr-UI': '1'}}).then((r) => r.status)`) == http.StatusNotFound {
		t.Skip("the server has no history")
	}
	ready := func(replicas int) {
		b.visit("#/object/apps/deployments/shop/web")
		b.until("the replicas", fmt.Sprintf(`[...document.querySelectorAll('.pairs dt')].some((e) => e.textContent === 'readyReplicas' && e.nextSibling.textContent === '%d')`, replicas))
	}
	ready(2)
	// A step of the slider is a thousandth of the period: 0.6 s. A moment that it can show between
	// two changes needs as much time on both sides.
	time.Sleep(time.Second)
	before := time.Now()
	time.Sleep(time.Second)
	change := []byte(`{"spec":{"replicas":3,"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	if _, err := k.AppsV1().Deployments("shop").Patch(t.Context(), "web", types.StrategicMergePatchType, change, metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
	ready(3)

	// The waterfall of the change, down to the pods.
	b.visit("#/object/apps/deployments/shop/web/trace")
	b.until("the pods", `[...document.querySelectorAll('.waterfall td:first-child')].some((td) => td.textContent.includes('pods shop/web'))`)
	b.until("links", `[...document.querySelectorAll('.waterfall a')].every((a) => a.href)`)
	b.picture("page-trace")

	// The timeline: the change with its fields, and the object as it was.
	b.visit("#/object/apps/deployments/shop/web/timeline")
	b.until("the changed field", `[...document.querySelectorAll('.changes li')].some((li) => /spec\.replicas/.test(li.textContent) && li.querySelector('del')?.textContent === '2' && li.querySelector('ins')?.textContent === '3')`)
	eval[any](b, `{ const p = document.querySelector('#panel select'); p.value = '10m'; p.dispatchEvent(new Event('change')); }`)
	b.until("the changes", `document.querySelectorAll('.changes > li').length > 1 && !document.querySelector('.changes .later')`)
	eval[any](b, `document.querySelector('.slider').focus()`)
	at := func() int64 {
		return eval[int64](b, `(() => { const s = document.querySelector('.slider'); return Date.parse(s.dataset.time); })()`)
	}
	for at() > before.UnixMilli() {
		b.press(kb.ArrowLeft)
	}
	b.until("the difference", `[...document.querySelectorAll('.then del.line')].some((l) => l.textContent.includes('replicas: 2')) && [...document.querySelectorAll('.then ins.line')].some((l) => l.textContent.includes('replicas: 3'))`)
	b.until("later changes", `document.querySelector('.changes .later')`)
	b.picture("page-timeline")

	// The timeline of a namespace leads to the story of a change, and lists objects as they were.
	b.choose("namespace", "shop")
	b.visit("#/timeline")
	b.until("changes and events", `document.querySelector('.changes a[href^="#/trace/"]') && document.querySelector('.changes .state')`)
	eval[any](b, `{ const p = document.querySelector('#main select'); p.value = '10m'; p.dispatchEvent(new Event('change')); }`)
	b.until("the changes", `document.querySelectorAll('.changes > li').length > 1`)
	eval[any](b, `document.querySelector('.slider').focus()`)
	for at() > before.UnixMilli() {
		b.press(kb.ArrowLeft)
	}
	b.until("the pods of then", `document.querySelectorAll('.then tbody tr').length >= 6`)
	eval[any](b, `document.querySelector('.changes a[href^="#/trace/"]').click()`)
	b.until("the story", `document.querySelector('.waterfall tbody tr')`)
	b.checkQuiet(hostOf(t, c))
}
