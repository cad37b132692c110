package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth/session"
)

// patience limits the wait for something that the page shows; tests never assert how long it took.
const patience = 60 * time.Second

// browser is a tab of a Chromium with a fresh profile.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex // guards the lists
	hosts    map[string]bool
	problems []string
}

// violations keeps the page's breaches of its Content-Security-Policy.
const violations = `addEventListener('securitypolicyviolation', (e) => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))`

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium: hack/prerequisites.sh ui")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 800),
		chromedp.IgnoreCertErrors, chromedp.Flag("lang", "en-US"), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	// Not the test's context, which ends before the clean-up that shows the page of a failed test.
	allocated, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	b := &browser{t: t, ctx: ctx, hosts: map[string]bool{}}
	b.do() // opens the tab
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, page.Enable, page.EnableParams{})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: violations})
	t.Cleanup(func() {
		if t.Failed() {
			b.dump()
		}
	})
	return b
}

func (b *browser) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && u.Host != "" {
			b.hosts[u.Host] = true
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		if string(e.Type) == "error" {
			for _, arg := range e.Args {
				b.problems = append(b.problems, string(arg.Value))
			}
		}
	}
}

// checkQuiet fails the test after an error of a script, a violation of the policy, or a request to
// another host.
func (b *browser) checkQuiet(host string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, problem := range b.problems {
		b.t.Error("the page reports:", problem)
	}
	for other := range b.hosts {
		if other != host {
			b.t.Errorf("the page asked %s, which is not its server", other)
		}
	}
	if !b.hosts[host] {
		b.t.Errorf("no request to %s was seen", host)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call runs a command of the debugging protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	answer, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// eval returns the value of a JavaScript expression; a promise is awaited.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until a JavaScript expression is true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if eval[bool](b, "!!("+expression+")") {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("the page does not show %s", what)
		}
	}
}

// shows waits until the page has a text.
func (b *browser) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q", text), "document.body.innerText.includes("+quote(text)+")")
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // strings can be encoded
	return string(quoted)
}

// rowOf is an expression for the row of an object in the grid.
func rowOf(name string) string {
	return "[...document.querySelectorAll('.grid-space .grid-row')].find((r) => r.firstChild.textContent === " + quote(name) + ")"
}

// dark makes the system prefer dark colours, or light ones.
func (b *browser) dark(on bool) {
	b.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[on]
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}})
}

// maxImage limits the size of a picture in the docs.
const maxImage = 150 << 10

// picture writes a picture of the page, if KNARR_UI_IMAGES names a folder.
func (b *browser) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("KNARR_UI_IMAGES")
	if folder == "" {
		return
	}
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if len(data) > maxImage {
		b.t.Errorf("the picture %s has %d bytes, more than %d", name, len(data), maxImage)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// dump shows what the page showed when the test failed.
func (b *browser) dump() {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.hash + '\\n' + document.body.innerText"))
	if err != nil {
		return // the browser has ended
	}
	b.t.Logf("the page at %s", text)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Logf("its errors: %s", strings.Join(b.problems, "\n"))
}

// linkFor asks the server for a link, as `knarr ui` does.
func linkFor(t *testing.T, config *rest.Config) string {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	response, err := c.Post(config.Host+session.LinksPath, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var link session.Link
	if err := json.NewDecoder(response.Body).Decode(&link); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a link: %s, %v", response.Status, err)
	}
	return config.Host + link.Path
}

// logIn opens the page as a user.
func (b *browser) logIn(config *rest.Config) {
	b.t.Helper()
	b.do(chromedp.Navigate(linkFor(b.t, config)))
	b.until("the navigation", "document.querySelector('#nav a')")
}

// visit goes to a place in the page.
func (b *browser) visit(place string) {
	b.t.Helper()
	eval[any](b, "void (location.hash = "+quote(place)+")")
}

// press sends keys to the focused element.
func (b *browser) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}
