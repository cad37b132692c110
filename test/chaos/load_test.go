package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	valueKey = "value"
	chosen   = "chosen=yes" // half of the objects
)

// history is what all clients of one round saw of one kind.
type history struct {
	began time.Time
	value atomic.Int64 // the last unique value given out

	mu      sync.Mutex // guards what follows
	ops     []porcupine.Operation
	acked   []acked
	lists   []listing
	reads   []read
	ends    []end    // of the server
	strange []oddity // answers that only a server that is ending may give
	known   []int64  // revisions that somebody was told of

	counts counts // by check
}

// end is from when the server was to end until it had.
type end struct{ from, to int64 }

// oddity is an answer that no server in full health gives, and when it was asked for and given.
type oddity struct {
	from, to int64
	what     string
	// ending: a server may give it while it ends.
	ending bool
}

// acked is a write that was acknowledged with its version.
type acked struct {
	name    string
	version int64
	at      int64 // when the answer came
}

// read is a get that was to be no older than a revision.
type read struct {
	wanted  int64
	name    string
	version int64
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) next() string { return fmt.Sprint(h.value.Add(1)) }

// record adds an operation. A read without an answer says nothing, and what was refused before it was sent did not happen.
func (h *history) record(client int, in input, call int64, out output) {
	if out.outcome == refused || (out.outcome == unknown && in.do == get) {
		return
	}
	returned := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: returned})
	gone := out.item.deleting && out.item.held == 0 // its version is not the deletion's
	if v, err := strconv.ParseInt(out.item.version, 10, 64); err == nil && out.outcome == done && !gone {
		h.known = append(h.known, v)
		if in.do != get {
			h.acked = append(h.acked, acked{name: in.name, version: v, at: returned})
		}
	}
}

// learn notes a revision that somebody was told of.
func (h *history) learn(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = append(h.known, revision)
}

// revision is one that is known, a recent one more likely than an old one; "" when there is none.
func (h *history) revision(random *rand.Rand) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.known)
	if n == 0 {
		return ""
	}
	back := random.IntN(min(n, []int{2, 20, 200}[random.IntN(3)]))
	return fmt.Sprint(h.known[n-1-back])
}

// ended notes that the server has just ended, as it was told to a while ago.
func (h *history) ended(told time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, end{int64(told.Sub(h.began)), h.now()})
}

// expect notes an answer to what was asked for then, if it is a definite one that is not expected. A server that ends, or has just begun, or is busy
// may say that.
func (h *history) expect(asked int64, err error, what string, codes ...int32) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return // none came, or success
	}
	code := status.Status().Code
	if slices.Contains(append(codes, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout), code) {
		return
	}
	h.odd(asked, fmt.Sprintf("%s: %d %v", what, code, err), code >= http.StatusInternalServerError)
}

func (h *history) odd(asked int64, what string, ending bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strange = append(h.strange, oddity{asked, h.now(), what, ending})
}

// checkAnswers finds the first of the odd answers that can not be from the server's end.
func (h *history) checkAnswers() error {
	for _, o := range h.strange {
		meanwhile := func(e end) bool { return e.from <= o.to && o.from <= e.to }
		if !o.ending || !slices.ContainsFunc(h.ends, meanwhile) {
			return fmt.Errorf("not an answer of a server that lives: %s", o.what)
		}
	}
	return nil
}

// settled are the operations, with those that had no answer drawn out to the server's next death: until then they may take effect.
func (h *history) settled() []porcupine.Operation {
	ops := slices.Clone(h.ops)
	for i := range ops {
		if ops[i].Output.(output).outcome != unknown {
			continue
		}
		end := int64(math.MaxInt64)
		for _, e := range h.ends {
			if e.to > ops[i].Return {
				end = min(end, e.to)
			}
		}
		ops[i].Return = end
	}
	return ops
}

// actor is one client that reads and writes a few names of one kind at random.
type actor struct {
	id     int
	kind   *kind
	h      *history
	api    api
	names  []string
	random *rand.Rand
	seen   map[string]item // what it saw last of each name
}

// act does one thing after the other until ctx ends.
func (a *actor) act(ctx context.Context) {
	for ctx.Err() == nil {
		name := a.names[a.random.IntN(len(a.names))]
		switch n := a.random.IntN(26); {
		case n < 5:
			a.get(ctx, name)
		case n < 8:
			a.create(ctx, name)
		case n < 11:
			a.update(ctx, name)
		case n < 16:
			a.patch(ctx, name)
		case n < 17:
			a.apply(ctx, name)
		case n < 20:
			a.remove(ctx, name)
		case n < 21 && a.kind.reports:
			a.report(ctx, name)
		case n < 22:
			a.sweep(ctx)
		default:
			a.list(ctx)
		}
	}
}

// request bounds one request: without an answer its outcome is unknown.
func request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*time.Second)
}

// outcomeOf tells what an answer means for the object. Whatever is no definite answer is unknown.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case apierrors.IsNotFound(err):
		return notFound
	case apierrors.IsAlreadyExists(err):
		return exists
	case apierrors.IsConflict(err):
		return conflict
	case apierrors.IsInvalid(err):
		return invalid
	}
	return unknown
}

// do makes one request and records it.
func (a *actor) do(ctx context.Context, in input, send func(ctx context.Context) (item, error)) {
	ctx, cancel := request(ctx)
	defer cancel()
	call := a.h.now()
	got, err := send(ctx)
	a.h.expect(call, err, fmt.Sprintf("%+v", in), http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity)
	if in.dry {
		got = item{} // what would have been
	}
	out := output{outcome: outcomeOf(err), item: got}
	if err == nil && got.name != "" {
		a.seen[in.name] = got
	}
	a.h.record(a.id, in, call, out)
	if out.outcome == refused || out.outcome == unknown {
		pause(context.Background())
	}
}

// get reads the newest state, or one that is no older than some revision, which is no read of the register.
func (a *actor) get(ctx context.Context, name string) {
	revision := a.h.revision(a.random)
	if revision == "" || a.random.IntN(4) > 0 {
		a.do(ctx, input{do: get, name: name}, func(ctx context.Context) (item, error) { return a.api.get(ctx, name, metav1.GetOptions{}) })
		return
	}
	ctx, cancel := request(ctx)
	defer cancel()
	call := a.h.now()
	got, err := a.api.get(ctx, name, metav1.GetOptions{ResourceVersion: revision})
	if err != nil {
		a.h.expect(call, err, fmt.Sprintf("get %s as of %s", name, revision), http.StatusNotFound)
		return
	}
	r := read{name: name}
	r.wanted, _ = strconv.ParseInt(revision, 10, 64)
	r.version, _ = strconv.ParseInt(got.version, 10, 64)
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.h.reads = append(a.h.reads, r)
}

// finalizers chooses some, or none: most objects have none.
func (a *actor) finalizers() holds {
	return []holds{0, 0, 0, 1, 2, 3}[a.random.IntN(6)]
}

func (a *actor) create(ctx context.Context, name string) {
	in, dry := a.dry(input{do: create, name: name, value: a.h.next(), holds: true, held: a.finalizers(), chosen: a.random.IntN(2) > 0})
	a.do(ctx, in, func(ctx context.Context) (item, error) {
		return a.api.create(ctx, in.object(), metav1.CreateOptions{DryRun: dry})
	})
}

func (a *actor) update(ctx context.Context, name string) {
	in, dry := a.dry(input{do: update, name: name, value: a.h.next(), holds: true, held: a.finalizers(), chosen: a.random.IntN(2) > 0})
	if in.at = a.seen[name].version; a.kind.unconditional && a.random.IntN(3) == 0 {
		in.at = ""
	}
	if in.at == "" && !a.kind.unconditional {
		a.get(ctx, name)
		return
	}
	if a.random.IntN(3) == 0 {
		in.uid = a.seen[name].uid
	}
	a.do(ctx, in, func(ctx context.Context) (item, error) {
		return a.api.update(ctx, in.object(), metav1.UpdateOptions{DryRun: dry})
	})
}

// object is what a create or update sends.
func (in input) object() item {
	return item{name: in.name, uid: in.uid, version: in.at, value: in.value, held: in.held, chosen: in.chosen}
}

// dry makes some of the writes those of which nothing may remain.
func (a *actor) dry(in input) (input, []string) {
	if a.random.IntN(8) > 0 {
		return in, nil
	}
	in.dry = true
	return in, []string{metav1.DryRunAll}
}

// patch changes the value, and at times the finalizers, of what it demands: by a merge patch, or a JSON patch that tests the value.
func (a *actor) patch(ctx context.Context, name string) {
	in, dry := a.dry(input{do: patch, name: name, value: a.h.next()})
	seen := a.seen[name]
	if seen.value != "" && a.random.IntN(4) == 0 {
		in.old = seen.value
		body := fmt.Sprintf(`[{"op":"test","path":"/%[1]s/value","value":"%[2]s"},{"op":"replace","path":"/%[1]s/value","value":"%[3]s"}]`, a.api.section(), in.old, in.value)
		a.do(ctx, in, func(ctx context.Context) (item, error) {
			return a.api.patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{DryRun: dry})
		})
		return
	}
	demands := []string{}
	if a.random.IntN(2) == 0 {
		in.holds, in.held = true, a.finalizers()
		demands = append(demands, fmt.Sprintf(`"finalizers":[%s]`, quoted(in.held.names())))
	}
	if seen.uid != "" && a.random.IntN(4) == 0 {
		in.uid = seen.uid
		demands = append(demands, fmt.Sprintf(`"uid":"%s"`, in.uid))
	}
	if seen.version != "" && a.random.IntN(4) == 0 {
		in.at = seen.version
		demands = append(demands, fmt.Sprintf(`"resourceVersion":"%s"`, in.at))
	}
	body := fmt.Sprintf(`{"metadata":{%s},"%s":{"value":"%s"}}`, strings.Join(demands, ","), a.api.section(), in.value)
	a.do(ctx, in, func(ctx context.Context) (item, error) {
		return a.api.patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{DryRun: dry})
	})
}

func quoted(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, strconv.Quote(name))
	}
	return strings.Join(list, ",")
}

// apply makes the object or changes its value.
func (a *actor) apply(ctx context.Context, name string) {
	in, force := input{do: apply, name: name, value: a.h.next()}, true
	body := fmt.Sprintf(`{%s,"metadata":{"name":"%s"},"%s":{"value":"%s"}}`, a.api.header(), name, a.api.section(), in.value)
	a.do(ctx, in, func(ctx context.Context) (item, error) {
		return a.api.patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "chaos", Force: &force})
	})
}

func (a *actor) remove(ctx context.Context, name string) {
	in, dry := a.dry(input{do: remove, name: name})
	seen := a.seen[name]
	demands := &metav1.Preconditions{}
	if seen.version != "" && a.random.IntN(3) == 0 {
		in.at, demands.ResourceVersion = seen.version, &seen.version
	}
	if uid := types.UID(seen.uid); uid != "" && a.random.IntN(3) == 0 {
		in.uid, demands.UID = seen.uid, &uid
	}
	a.do(ctx, in, func(ctx context.Context) (item, error) {
		return item{}, a.api.remove(ctx, name, metav1.DeleteOptions{Preconditions: demands, DryRun: dry})
	})
}

// report writes the status; what it says of the rest is to be ignored.
func (a *actor) report(ctx context.Context, name string) {
	in, seen, metadata := input{do: report, name: name, value: a.h.next()}, a.seen[name], ""
	if seen.version != "" && a.random.IntN(3) == 0 {
		in.at, metadata = seen.version, fmt.Sprintf(`"resourceVersion":"%s"`, seen.version)
	}
	body := fmt.Sprintf(`{"metadata":{%s},"status":{"value":"%s"},"%s":{"value":"no write of the status may change it"}}`, metadata, in.value, a.api.section())
	a.do(ctx, in, func(ctx context.Context) (item, error) {
		return a.api.patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	})
}

// sweep deletes all objects, or those with the label: one by one, each at a time of its own.
func (a *actor) sweep(ctx context.Context) {
	ctx, cancel := request(ctx)
	defer cancel()
	in, opts := input{do: sweep, only: a.random.IntN(2) > 0}, metav1.ListOptions{}
	if in.only {
		opts.LabelSelector = chosen
	}
	call := a.h.now()
	err := a.api.sweep(ctx, opts)
	a.h.expect(call, err, fmt.Sprintf("%+v", in))
	out := output{outcome: outcomeOf(err)}
	for _, in.name = range a.names {
		a.h.record(a.id, in, call, out)
	}
	if out.outcome == refused || out.outcome == unknown {
		pause(context.Background())
	}
}
