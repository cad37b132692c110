package ui

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/knarrtest"
)

// axeFile has the rules of axe. `make ui` fetches it as the lock file pins it.
const axeFile = "axe/node_modules/axe-core/axe.min.js"

// violation is a rule of axe that elements of the page break.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// axe checks what the page shows. The rules come by the debugging protocol, past the page's policy.
func (b *browser) axe(rules string) []violation {
	b.t.Helper()
	if !eval[bool](b, "!!window.axe") {
		eval[any](b, rules+"; void 0")
	}
	// Colours change by a transition, which axe must not see half way.
	eval[any](b, `Promise.all(document.getAnimations().map((a) => a.finished.catch(() => {}))).then(() => undefined)`)
	return eval[[]violation](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.map((n) => n.html + ' ' + n.failureSummary)})))`)
}

// settled is true when the page awaits no answer.
const settled = `document.querySelector('#main h1') && !document.querySelector('#main [aria-busy=true]')`

// places returns every view of the page, with objects of shop.
func places() []string {
	pod := "#/object/core/pods/shop/broken"
	return []string{
		"#/overview", "#/list/apps/deployments", "#/list/core/pods", "#/list/core/nodes", "#/list/core/services", "#/list/core/persistentvolumeclaims", "#/list/core/events",
		"#/why", "#/map", "#/timeline", "#/kinds", "#/create", "#/trace/1",
		pod, pod + "/why", pod + "/logs", pod + "/shell", pod + "/events", pod + "/trace", pod + "/timeline", pod + "/yaml",
		"#/object/apps/deployments/shop/web", "#/object/apps/deployments/shop/web/pods", "#/object/apps/deployments/shop/web/why",
		"#/object/apps/deployments/shop/web/timeline", "#/object/apps/deployments/shop/web/trace", "#/object/core/nodes/-/node-0", "#/object/core/nodes/-/node-0/pods",
	}
}

func TestAxeFindsNothingInAnyView(t *testing.T) {
	rules, err := os.ReadFile(axeFile)
	if err != nil {
		t.Skip("needs the rules of axe: make ui")
	}
	c := knarrtest.Start(t, knarrtest.WithNodes(2), knarrtest.WithFate(fates))
	shop(t, clientset(t, c.Config()))
	b := openBrowser(t)
	b.dark(false)
	look := func(what string) {
		for _, v := range b.axe(string(rules)) {
			t.Errorf("%s: %s: %s\n  %s", what, v.ID, v.Help, strings.Join(v.Nodes, "\n  "))
		}
	}
	b.do(chromedp.Navigate(c.Config().Host + "/ui/"))
	b.until("the log-in", `document.querySelector('.login')`)
	look("the log-in")
	b.logIn(c.Config())
	for _, language := range []string{"en", "zh"} {
		b.choose("language", language)
		for _, place := range places() {
			b.visit(place)
			b.until(place, settled+` && location.hash === `+quote(place))
			for _, dark := range []bool{false, true} {
				b.dark(dark)
				look(place + map[bool]string{true: " dark ", false: " light "}[dark] + language)
			}
		}
	}
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		b.visit("#/object/apps/deployments/shop/web")
		for _, action := range []string{"scale", "restart", "delete"} {
			b.until(action, `document.querySelector('[data-action=`+action+`]:not([hidden])')`)
			eval[any](b, `document.querySelector('[data-action=`+action+`]').click()`)
			b.until("the dialog", `document.querySelector('dialog[open]')`)
			look("the dialog " + action)
			eval[any](b, `document.querySelector('dialog').close()`)
		}
	}
}

// shop is an application with two tiers and a broken pod.
func shop(t *testing.T, k kubernetes.Interface) {
	t.Helper()
	createNamespace(t, k, "shop")
	createIn(t, k, "shop", tier("web", "api"), tier("api", "db"), tier("db", ""))
	createPod(t, k, "shop", "broken")
}
