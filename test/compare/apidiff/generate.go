package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// generator makes cases: single requests, or the life of an object.
type generator struct {
	bodies  bool // only requests with an object
	corpus  []*entry
	schemas *schemas
	report  *report
	sides   pair
}

func (g *generator) run(ctx context.Context, o *options) error {
	var next atomic.Int64
	next.Store(o.first - 1)
	var wg sync.WaitGroup
	errs := make(chan error, o.workers)
	for w := range o.workers {
		wg.Go(func() {
			for g.sent() < o.n && ctx.Err() == nil {
				i := next.Add(1)
				c := &scenario{
					generator: g, ctx: ctx, r: rand.New(rand.NewPCG(o.seed, uint64(i))),
					namespace: space(w), name: fmt.Sprintf("case-%d-%d", o.seed, i), number: i,
				}
				c.play(g.corpus[int(i)%len(g.corpus)])
				if c.err != nil {
					if ctx.Err() == nil {
						errs <- c.err
					}
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	return ctx.Err()
}

// printProgress prints the number of sent requests every 15 seconds, until stop is called.
func (g *generator) printProgress(all int) (stop func()) {
	began, ticker, done := time.Now(), time.NewTicker(15*time.Second), make(chan struct{})
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(os.Stderr, "%s: %d of %d requests\n", time.Since(began).Round(time.Second), g.sent(), all)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func (g *generator) sent() int {
	g.report.mu.Lock()
	defer g.report.mu.Unlock()
	return g.report.sent
}

func space(worker int) string { return fmt.Sprintf("diff-%d", worker) }

// prepare creates what admission needs: namespaces with their service account.
func prepare(ctx context.Context, sides pair, workers int) error {
	for _, s := range sides {
		for w := range workers {
			for path, body := range map[string]string{
				"/api/v1/namespaces": fmt.Sprintf(`{"metadata":{"name":%q}}`, space(w)),
			} {
				if err := must(s.send(ctx, post(path, body))); err != nil {
					return err
				}
			}
			if err := must(s.send(ctx, post("/api/v1/namespaces/"+space(w)+"/serviceaccounts", `{"metadata":{"name":"default"}}`))); err != nil {
				return err
			}
		}
	}
	return nil
}

func post(path, body string) request {
	return request{method: http.MethodPost, path: path, contentType: "application/json", body: []byte(body)}
}

func must(a *answer, err error) error {
	if err == nil && a.code >= 300 {
		err = fmt.Errorf("%d: %s", a.code, a.text)
	}
	return err
}

// scenario is one running case. After the first step last holds each side's object.
type scenario struct {
	*generator
	ctx       context.Context
	r         *rand.Rand
	namespace string
	name      string
	number    int64
	entry     *entry
	last      [2]map[string]any
	answered  [2]any // bodies of the answers to the last request
	// One side has accepted a write that the other has not: later differences would only follow
	// from that.
	apart bool
	err   error
}

// play mostly sends one dry run with an edited object, and sometimes plays the life of an object.
func (c *scenario) play(e *entry) {
	c.entry = e
	if e.kind == "Event" {
		c.forgetRepairs()
	}
	obj := c.fresh()
	roll := c.r.IntN(22)
	if roll >= 20 {
		c.absent()
		return
	}
	if roll < 9 || dryOnly[e.kind] {
		edits := c.edits(obj)
		query := "dryRun=All" + c.fieldValidation()
		c.both("create", edits, func(int) request {
			return c.write(http.MethodPost, e.collection(e.version, c.namespace)+"?"+query, obj, "application/json")
		})
		return
	}
	c.live(obj)
}

// forgetRepairs deletes Events that no case has made: upstream sends some about Services whose
// addresses or ports it checked too early.
func (c *scenario) forgetRepairs() {
	for _, s := range c.sides {
		if _, err := s.send(c.ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + c.namespace + "/events?labelSelector=%21case"}); err != nil {
			c.err = err
		}
	}
}

// dryOnly lists kinds whose objects would affect other cases.
var dryOnly = map[string]bool{
	"CustomResourceDefinition": true, "APIService": true, "ValidatingWebhookConfiguration": true, "MutatingWebhookConfiguration": true, "ValidatingAdmissionPolicyBinding": true,
	"MutatingAdmissionPolicyBinding": true, "ServiceCIDR": true, "TokenReview": true, "SubjectAccessReview": true, "SelfSubjectAccessReview": true, "LocalSubjectAccessReview": true, "SelfSubjectRulesReview": true, "SelfSubjectReview": true,
}

// freshNamed returns the corpus's object under another name, with the label of this case.
func (c *scenario) freshNamed(name string) map[string]any {
	obj := clone(c.entry.object).(map[string]any)
	meta := obj["metadata"].(map[string]any)
	meta["name"], meta["labels"] = name, map[string]any{"case": c.name}
	return obj
}

// fresh returns the corpus's object under a name of its own.
func (c *scenario) fresh() map[string]any {
	obj := clone(c.entry.object).(map[string]any)
	meta := obj["metadata"].(map[string]any)
	switch c.entry.kind {
	case "CustomResourceDefinition", "APIService":
		// Their names are their values.
	case "IPAddress":
		meta["name"] = fmt.Sprintf("192.168.%d.%d", c.number/250%250, c.number%250+1)
	case "ServiceCIDR":
		meta["name"] = c.name
	default:
		meta["name"] = c.name
	}
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		meta["labels"] = labels
	}
	labels["case"] = c.name
	c.name = meta["name"].(string)
	return obj
}

func (c *scenario) fieldValidation() string {
	return oneOf(c.r, []string{"", "&fieldValidation=Strict", "&fieldValidation=Warn", "&fieldValidation=Ignore", "&fieldValidation=Strict"})
}

// edits edits obj in one or two places, and describes the edits.
func (c *scenario) edits(obj map[string]any) string {
	var said []string
	for range 1 + c.r.IntN(5)/4 {
		e := c.pick(obj, nil)
		if _, ok := e.apply(obj); ok {
			said = append(said, e.String())
		}
	}
	return strings.Join(said, "; ")
}

// pick returns an edit somewhere in obj; within limits it to one of the top-level fields.
func (c *scenario) pick(obj map[string]any, within []string) edit {
	list := c.schemas.places(obj, c.schemas.roots[c.entry.group+"/"+c.entry.version+"/"+c.entry.kind], nil, nil)
	if len(within) > 0 {
		var some []place
		for _, p := range list {
			if len(p.path) > 0 {
				for _, w := range within {
					if p.path[0] == w {
						some = append(some, p)
					}
				}
			}
		}
		if len(some) > 0 {
			list = some
		}
	}
	return c.schemas.editAt(c.r, oneOf(c.r, list))
}

func (c *scenario) write(method, path string, body any, contentType string) request {
	data, err := json.Marshal(body)
	if err != nil {
		c.err = err
	}
	return request{method: method, path: path, contentType: contentType, body: data}
}

// both sends a request to each side and reports the differences. It returns the status code if both
// agree, else 0.
func (c *scenario) both(verb, how string, make func(side int) request) int {
	if c.err != nil || c.apart {
		return 0
	}
	var requests [2]request
	var answers [2]*answer
	for i, s := range c.sides {
		requests[i] = make(i)
		if answers[i], c.err = s.send(c.ctx, requests[i]); c.err != nil {
			return 0
		}
	}
	a, b := answers[0], answers[1]
	c.answered = [2]any{a.object, b.object}
	what := verb + " " + c.entry.kind
	if c.entry.version != "v1" {
		what += " " + c.entry.version
	}
	c.report.add(what, compare(a, b), func() string {
		r := requests[1]
		return fmt.Sprintf("  %s %s %s\n  %s\n  %.3000s", r.method, r.path, r.contentType, how, r.body)
	})
	for i, x := range answers {
		if obj, ok := x.object.(map[string]any); ok && x.code < 300 && obj["kind"] == c.entry.kind && !strings.Contains(requests[i].path, "dryRun=All") {
			c.last[i] = obj
			orderManagers(obj)
		}
	}
	emptyAsNull(c.last[0], c.last[1])
	if r := &requests[0]; r.method != http.MethodGet && !strings.Contains(r.path, "dryRun=") {
		c.apart = a.code/100 != b.code/100
	}
	if a.code != b.code {
		return 0
	}
	return a.code
}
