package ui

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/knarrtest"
)

func TestThePageExplainsAndDraws(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(2), knarrtest.WithFate(fates))
	k := clientset(t, c.Config())
	shop(t, k)
	b := openBrowser(t)
	b.dark(false)
	b.logIn(c.Config())

	// From the list to the reason, by the key and by the link.
	b.visit("#/list/core/pods")
	b.until("seven pods", `document.querySelector('.grid')?.getAttribute('aria-rowcount') === '8'`)
	b.until("the broken pod", rowOf("broken")+"?.textContent.includes('ImagePullBackOff')")
	eval[any](b, rowOf("broken")+`.querySelector('a.why').click()`)
	b.until("the reason", `location.hash === '#/object/core/pods/shop/broken/why' && document.querySelector('.cause .remedy')`)
	b.picture("page-why")
	b.visit("#/list/core/pods")
	b.until("the list", `document.querySelector('.grid')?.getAttribute('aria-rowcount') === '8'`)
	b.press("w")
	b.until("the first pod's reason", `/^#\/object\/core\/pods\/shop\/.*\/why$/.test(location.hash) && document.querySelector('.headline .state')`)

	// What is not well in the cluster, with links to the objects.
	b.visit("#/why")
	b.until("the root cause", `[...document.querySelectorAll('.cause h2 a')].some((a) => a.getAttribute('href') === '#/object/core/pods/shop/broken')`)

	// The map, zoomed and moved by keys; a component opens its workload.
	b.choose("namespace", "shop")
	b.visit("#/map")
	b.until("four components", `document.querySelectorAll('.map .component').length === 4 && document.querySelectorAll('.map .relation').length === 2`)
	b.until("the link", `document.querySelector('.map a[aria-label^="shop/web"]')?.getAttribute('href') === '#/object/apps/deployments/shop/web'`)
	b.picture("page-map")
	width := func() float64 { return eval[float64](b, `document.querySelector('.map').viewBox.baseVal.width`) }
	eval[any](b, `document.querySelector('.map').focus()`)
	whole := width()
	b.press("+")
	if now := width(); now >= whole {
		t.Errorf("+ shows %v of %v", now, whole)
	}
	b.press(kb.ArrowRight)
	if at := eval[float64](b, `document.querySelector('.map').viewBox.baseVal.x`); at <= 0 {
		t.Errorf("the arrow moves to %v", at)
	}
	b.press("0")
	if now := width(); now != whole {
		t.Errorf("0 shows %v of %v", now, whole)
	}
	b.until("the map as text", `[...document.querySelectorAll('.alternative td')].some((td) => td.textContent.includes('shop/api') || td.textContent.includes('api'))`)
	eval[any](b, `document.querySelector('.map a[aria-label^="shop/web"]').focus()`)
	b.press(kb.Enter)
	b.until("the Deployment", `location.hash === '#/object/apps/deployments/shop/web'`)

	// Differences to the declaration: on the line, in its words, and in the legend.
	declare(t, k, `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},"offers":[{"name":"http","port":80}],"requires":[{"component":"ghost"}]}}`)
	b.visit("#/map")
	b.until("two marked relations", `document.querySelectorAll('.map .relation.undeclared').length === 2 && document.querySelectorAll('.map .mark.undeclared').length === 2`)
	b.until("the legend", `document.querySelectorAll('.legend li').length === 3`)
	b.until("the words", `document.querySelector('.map a[aria-label^="shop/web"]').getAttribute('aria-label').includes('shop/api: not declared')`)
	b.until("the words as text", `[...document.querySelectorAll('.alternative strong')].some((e) => e.textContent.includes('the component is missing'))`)
	b.until("short words at the lines", `[...document.querySelectorAll('.map .mark')].map((e) => e.textContent).sort().join() === 'missing,not declared'`)
	b.until("no words behind a component", `((covers) => {
		const boxes = [...document.querySelectorAll('.map .component rect')].map((e) => e.getBBox());
		return [...document.querySelectorAll('.map .mark')].every((e) => !boxes.some((b) => covers(b, e.getBBox())));
	})((a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height)`)
	b.picture("page-map-differences")
	b.checkQuiet(hostOf(t, c))
}

// declare creates a Component in the namespace shop, as soon as its kind is served.
func declare(t *testing.T, k kubernetes.Interface, component string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		body := strings.Replace(component, "{", `{"apiVersion":"architecture.knarr.io/v1alpha1","kind":"Component",`, 1)
		err := k.CoreV1().RESTClient().Post().AbsPath("/apis/architecture.knarr.io/v1alpha1/namespaces/shop/components").Body([]byte(body)).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestThePageScalesRestartsAndCreates(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(2))
	k := clientset(t, c.Config())
	shop(t, k)
	b := openBrowser(t)
	b.logIn(c.Config())
	b.visit("#/object/apps/deployments/shop/web")
	b.until("the button", `document.querySelector('[data-action=scale]:not([hidden])')`)
	eval[any](b, `document.querySelector('[data-action=scale]').click()`)
	b.until("the replicas", `document.querySelector('#replicas')?.value === '2'`)
	eval[any](b, `document.querySelector('#replicas').value = 3`)
	b.press(kb.Enter)
	b.until("three replicas", `[...document.querySelectorAll('.pairs dt')].some((e) => e.textContent === 'readyReplicas' && e.nextSibling.textContent === '3')`)
	eval[any](b, `document.querySelector('[data-action=restart]').click()`)
	b.until("the question", `document.querySelector('dialog[open] button.main')`)
	eval[any](b, `document.querySelector('dialog[open] button.main').click()`)
	b.until("the dialog's end", `!document.querySelector('dialog')`)
	d, err := k.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 || d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Errorf("%v %v", d.Spec, err)
	}

	// New objects and a change, in one file: a dry run shows both before anything is stored.
	b.choose("namespace", "shop")
	b.visit("#/list/core/pods")
	b.until("the link to create", `document.querySelector('a.action:not([hidden])')`)
	b.visit("#/create")
	write := func(text string) {
		eval[any](b, `{ const a = document.querySelector('textarea'); a.value = `+quote(text)+`; a.dispatchEvent(new Event('input')); }`)
	}
	write("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  nam: x\n")
	b.until("what is missing", `document.querySelector('.verdict.bad')`)
	write("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made\ndatas:\n  a: b\n")
	b.until("the unknown field", `document.querySelector('.verdict.bad')?.textContent.includes('datas')`)
	write("# two\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made # here\ndata:\n  a: b\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  labels: {app: api, tier: middle}\n  name: \"api\"\n")
	b.until("both", `document.querySelectorAll('.diff section').length === 2 && document.querySelector('.verdict.good') && [...document.querySelectorAll('ins.line')].some((l) => l.textContent.includes('tier: middle'))`)
	if _, err := k.CoreV1().ConfigMaps("shop").Get(t.Context(), "made", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run stores: %v", err)
	}
	eval[any](b, `document.querySelector('button.main').click()`)
	b.until("the links", `document.querySelectorAll('.diff section h2 a').length === 2`)
	if made, err := k.CoreV1().ConfigMaps("shop").Get(t.Context(), "made", metav1.GetOptions{}); err != nil || made.Data["a"] != "b" {
		t.Errorf("%v %v", made, err)
	}
	if d, err := k.AppsV1().Deployments("shop").Get(t.Context(), "api", metav1.GetOptions{}); err != nil || d.Labels["tier"] != "middle" || *d.Spec.Replicas != 2 {
		t.Errorf("%v %v", d, err)
	}
	b.checkQuiet(hostOf(t, c))
}

func TestEveryViewWorksByKeysAlone(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithFate(fates))
	shop(t, clientset(t, c.Config()))
	b := openBrowser(t)
	b.logIn(c.Config())
	b.shows("Overview")
	// The navigation: g, then j to each entry, and Enter.
	total := eval[int](b, `document.querySelectorAll('#nav a').length`)
	for i := range total {
		eval[any](b, `document.activeElement.blur()`)
		b.press("g")
		for range i {
			b.press("j")
		}
		want := eval[string](b, `document.activeElement.getAttribute('href')`)
		b.press(kb.Enter)
		b.until(want, settled+` && location.hash === `+quote(want)+` && document.querySelector('#nav [aria-current=page]')?.getAttribute('href') === `+quote(want))
		if strings.HasPrefix(want, "#/list/") {
			b.until("the focus on the grid", `document.activeElement.classList.contains('grid')`)
		}
	}
	// Every control of every view is reached by Tab, and shows its focus.
	for _, place := range places() {
		b.visit(place)
		b.until(place, settled+` && location.hash === `+quote(place))
		missing := eval[string](b, `[...document.querySelectorAll('#main a[href], #main button:not(:disabled), #main select, #main input, #main textarea, #main summary')]
			.filter((e) => e.checkVisibility() && e.tabIndex < 0 && !e.matches('.grid a.why, [role=tab]')).map((e) => e.outerHTML).join()`)
		if missing != "" {
			t.Errorf("%s: not reached by Tab: %s", place, missing)
		}
	}
	// Tabs of an object by arrows.
	b.visit("#/object/core/pods/shop/broken")
	b.until("the tabs", `document.querySelectorAll('[role=tab]:not([hidden])').length >= 8`)
	eval[any](b, `document.querySelector('[role=tab][aria-selected=true]').focus()`)
	b.press(kb.ArrowRight)
	b.press(kb.Enter)
	b.until("the next tab", `location.hash === '#/object/core/pods/shop/broken/why'`)
	b.checkQuiet(hostOf(t, c))
}
