package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth/session"
	"github.com/knarr-project/knarr/knarrtest"
)

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// hostOf returns the host and port of the cluster's server.
func hostOf(t *testing.T, c *knarrtest.Cluster) string {
	t.Helper()
	u, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/" + name + ":1"}}},
		}},
	}
}

func create(t *testing.T, k kubernetes.Interface, all ...*appsv1.Deployment) {
	t.Helper()
	for _, d := range all {
		if _, err := k.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// untainted waits until nodes take pods, so that the page does not show warnings of the start.
func untainted(t *testing.T, k kubernetes.Interface, want int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		nodes, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		free := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 })
		return len(free) == want, nil
	})
	if err != nil {
		t.Fatalf("not %d nodes without taints: %v", want, err)
	}
}

// fates make the pods of app "broken" wait for their image.
func fates(pod *corev1.Pod) knarrtest.Fate {
	if pod.Labels["app"] == "broken" {
		return knarrtest.Fate{Waiting: "ImagePullBackOff"}
	}
	return knarrtest.Fate{}
}

func TestThePageShowsAndChangesTheCluster(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(3), knarrtest.WithFate(fates))
	k := clientset(t, c.Config())
	untainted(t, k, 3)
	create(t, k, deployment("web", 4), deployment("api", 3), deployment("broken", 1))
	b := openBrowser(t)
	b.dark(false)
	b.logIn(c.Config())
	if at := eval[string](b, "location.href"); strings.Contains(at, "code=") {
		t.Errorf("the address still has the code: %s", at)
	}

	// Seven watches at once need HTTP/2: browsers have six connections of HTTP/1.1.
	if by := eval[string](b, `[...new Set(performance.getEntriesByType('resource').map((e) => e.nextHopProtocol))].join()`); by != "h2" {
		t.Errorf("the browser speaks %s", by)
	}

	// The overview.
	b.shows("ImagePullBackOff")
	b.shows("default/broken")
	b.until("three ready nodes", `[...document.querySelectorAll('.figure')].some((f) => f.textContent === '3 / 3')`)
	b.until("the running pods", `[...document.querySelectorAll('.tile li')].some((li) => /^Running\s*7$/.test(li.textContent))`)
	b.picture("page-overview")

	// The list, live.
	b.visit("#/list/core/pods")
	b.until("eight pods", `document.querySelector('.grid')?.getAttribute('aria-rowcount') === '9'`)
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{"tier": "x"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/late:1"}}}}
	if _, err := k.CoreV1().Pods("default").Create(t.Context(), bare, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until("the new pod running", rowOf("late")+"?.textContent.includes('Running')")

	// The filter and the keyboard.
	b.press("/")
	b.until("the focus on the filter", `document.activeElement.id === 'filter'`)
	// The driver sends the character in spite of preventDefault.
	eval[any](b, `document.activeElement.value = ''`)
	b.press("tier=x")
	b.until("one row", `document.querySelector('.grid').getAttribute('aria-rowcount') === '2'`)
	b.press(kb.Enter)
	b.until("the focus on the grid", `document.activeElement.classList.contains('grid')`)
	b.press(kb.Enter)
	b.shows("registry.example/late:1")
	b.until("the tabs", `document.querySelectorAll('[role=tab]').length >= 5`)
	b.press(kb.Escape)
	b.until("the list again", `location.hash === '#/list/core/pods'`)
	if err := k.CoreV1().Pods("default").Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.until("no row", `document.querySelector('.grid').getAttribute('aria-rowcount') === '1'`)

	// A change by the editor.
	b.visit("#/object/apps/deployments/default/web/yaml")
	b.until("the YAML", `document.querySelector('textarea')?.value.includes('replicas: 4')`)
	b.until("the right to change it", `!document.querySelector('textarea').readOnly`)
	edit := func(from, to string) {
		eval[any](b, fmt.Sprintf(`{ const a = document.querySelector('textarea'); a.value = a.value.replace(%s, %s); a.dispatchEvent(new Event('input')); }`, quote(from), quote(to)))
	}
	if eval[bool](b, `document.querySelector('textarea').value.includes('managedFields')`) {
		t.Error("the editor shows managedFields")
	}
	edit("replicas: 4", "replicas: -1")
	b.until("the server's error", `document.querySelector('.verdict.bad')?.textContent.includes('spec.replicas')`)
	edit("replicas: -1", "replica: 2")
	b.until("an unknown field", `document.querySelector('.verdict.bad')?.textContent.includes('unknown field')`)
	edit("replica: 2", "replicas: 2")
	b.until("the difference", `[...document.querySelectorAll('ins.line')].some((l) => l.textContent.includes('replicas: 2')) && document.querySelector('del.line')`)
	eval[any](b, `document.querySelector('button.main').click()`)
	b.shows("Applied.")
	got, err := k.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *got.Spec.Replicas != 2 {
		t.Errorf("after applying: %v replicas, %v", *got.Spec.Replicas, err)
	}
	if len(got.ManagedFields) < 2 {
		t.Errorf("the change left the managed fields %v", got.ManagedFields)
	}

	// Deletion asks first.
	b.visit("#/object/apps/deployments/default/api")
	b.until("the button", `document.querySelector('.bar .danger:not([hidden])')`)
	eval[any](b, `document.querySelector('.bar .danger').click()`)
	b.until("the question", `document.querySelector('dialog[open]')`)
	eval[any](b, `document.querySelector('dialog .danger').click()`)
	b.until("the list of Deployments", `location.hash === '#/list/apps/deployments'`)
	if _, err := k.AppsV1().Deployments("default").Get(t.Context(), "api", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment is not deleted: %v", err)
	}

	// Every section, and all kinds.
	for _, place := range []string{"#/list/core/nodes", "#/object/core/nodes/-/node-0", "#/object/core/nodes/-/node-0/pods", "#/list/core/services", "#/list/discovery.k8s.io/endpointslices", "#/list/core/persistentvolumeclaims", "#/list/core/events", "#/list/rbac.authorization.k8s.io/clusterroles", "#/object/apps/deployments/default/web/pods", "#/object/apps/deployments/default/web/events"} {
		b.visit(place)
		b.until(place, `document.querySelector('#main h1') && (document.querySelector('.grid[aria-busy=false]') || document.querySelector('.pairs'))`)
	}
	b.visit("#/kinds")
	b.shows("CustomResourceDefinition")
	b.checkQuiet(hostOf(t, c))
}

func TestThePageSpeaksTwoLanguagesInLightAndDark(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(1))
	create(t, clientset(t, c.Config()), deployment("web", 3))
	b := openBrowser(t)
	b.dark(false)
	b.logIn(c.Config())
	b.shows("Overview")
	back := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
	light := back()
	b.dark(true)
	dark := back()
	if light == dark {
		t.Errorf("the background is %s by day and by night", light)
	}
	choose := func(id, value string) {
		eval[any](b, fmt.Sprintf(`{ const s = document.getElementById(%s); s.value = %s; s.dispatchEvent(new Event('change')); }`, quote(id), quote(value)))
	}
	choose("theme", "light")
	b.until("the light theme", fmt.Sprintf(`getComputedStyle(document.body).backgroundColor === %s`, quote(light)))
	choose("theme", "dark")
	choose("language", "zh")
	b.shows("概览")
	if got := eval[string](b, `document.documentElement.lang`); got != "zh-CN" {
		t.Errorf("the document's language is %q", got)
	}
	b.visit("#/list/core/pods")
	b.until("the pods", `document.querySelector('.grid')?.getAttribute('aria-rowcount') === '4'`)
	b.until("running pods", `document.querySelectorAll('.grid-space .state.good').length === 3`)
	b.picture("page-pods-zh")
	b.do(chromedp.Reload()) // the cookie, the language and the theme stay
	b.shows("命名空间")
	b.until("the dark theme", fmt.Sprintf(`getComputedStyle(document.body).backgroundColor === %s`, quote(dark)))

	// What a screen reader needs; axe's rules go further.
	for what, expression := range map[string]string{
		"one h1":                     `document.querySelectorAll('h1').length === 1`,
		"one main, nav and header":   `['main', 'nav', 'header'].every((name) => document.querySelectorAll(name).length === 1)`,
		"a name for every control":   `[...document.querySelectorAll('input, select, textarea')].every((e) => e.labels.length > 0 || e.getAttribute('aria-label'))`,
		"a text for every button":    `[...document.querySelectorAll('button, a')].every((e) => e.textContent.trim())`,
		"unique ids":                 `new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size === document.querySelectorAll('[id]').length`,
		"an alternative per image":   `[...document.images].every((i) => i.hasAttribute('alt'))`,
		"a live region":              `document.querySelector('[aria-live=polite]')`,
		"a label of the navigation":  `document.querySelector('nav').getAttribute('aria-label')`,
		"the grid's label and focus": `document.querySelector('.grid').getAttribute('aria-label') && document.querySelector('.grid').tabIndex === 0`,
	} {
		b.until(what, expression)
	}
	b.checkQuiet(hostOf(t, c))
}

func TestThePageHasItsUsersRightsAlone(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithNodes(1), knarrtest.WithAudit("RequestResponse"))
	k := clientset(t, c.Config())
	create(t, k, deployment("web", 1))
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}}}
	if _, err := k.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reader := c.As("reader")
	b := openBrowser(t)
	link := linkFor(t, reader)
	b.do(chromedp.Navigate(link))
	b.shows("reader")
	b.visit("#/list/apps/deployments")
	b.shows("You may not list deployments in all namespaces")
	eval[any](b, `{ const n = document.getElementById('namespace'); n.value = 'default'; n.dispatchEvent(new Event('change')); }`)
	b.until("the Deployment", rowOf("web"))
	b.visit("#/object/apps/deployments/default/web/yaml")
	b.shows("You may read this object, not change it.")
	if eval[bool](b, `!!document.querySelector('.bar .danger:not([hidden])')`) {
		t.Error("a reader is offered to delete")
	}
	if status := eval[int](b, `fetch('/api/v1/namespaces/default/pods', {method: 'DELETE', headers: {'X-Knarr-UI': '1'}}).then((r) => r.status)`); status != http.StatusForbidden {
		t.Errorf("a reader deletes pods: %d", status)
	}
	if status := eval[int](b, `fetch('/api/v1/namespaces/default/pods').then((r) => r.status)`); status != http.StatusUnauthorized {
		t.Errorf("a request without the header: %d", status)
	}
	if cookies := eval[string](b, `document.cookie`); cookies != "" {
		t.Errorf("scripts see the cookie: %s", cookies)
	}
	cookie := theCookie(b)

	// The link does not work again, and log-out ends the session.
	other := openBrowser(t)
	other.do(chromedp.Navigate(link))
	other.shows("This link is used")
	eval[any](b, `[...document.querySelectorAll('#top button')].at(-1).click()`)
	b.shows("You are logged out.")
	request, err := http.NewRequest(http.MethodGet, reader.Host+"/api/v1/namespaces/default/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(session.ProofHeader, "1")
	request.AddCookie(&http.Cookie{Name: session.Cookie, Value: cookie})
	anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(reader))
	if err != nil {
		t.Fatal(err)
	}
	response, err := anonymous.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie after the log-out: %d", response.StatusCode)
	}
	checkAudit(t, c.AuditLog(), link[strings.Index(link, "code=")+len("code="):], cookie)
}

// theCookie returns the session's cookie, as the browser keeps it.
func theCookie(b *browser) string {
	b.t.Helper()
	all := call(b, network.GetCookies, network.GetCookiesParams{}).Cookies
	at := slices.IndexFunc(all, func(c *network.Cookie) bool { return c.Name == session.Cookie })
	if at < 0 {
		b.t.Fatal("the browser has no cookie")
	}
	if c := all[at]; !c.HTTPOnly || !c.Secure || c.SameSite != network.CookieSameSiteStrict || c.Path != "/" {
		b.t.Errorf("the cookie is %+v", c)
	}
	return all[at].Value
}

// checkAudit waits until the audit log names the session, and fails if it has a secret.
func checkAudit(t *testing.T, path string, secrets ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			if strings.Contains(string(data), secret) {
				t.Fatal("the audit log has a secret of the session")
			}
		}
		if strings.Contains(string(data), session.ExtraSession) && strings.Contains(string(data), session.SessionPath) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the audit log does not name the session")
		}
	}
}
