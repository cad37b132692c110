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
	// several means that the clients use several servers. Then a write without an answer may take
	// effect after the end of its server, since another one may have it.
	several bool
	last    int64        // revision of the last write, with several servers
	value   atomic.Int64 // the last unique value

	mu        sync.Mutex // guards the fields below
	ops       []porcupine.Operation
	acked     []acked
	lists     []listing
	reads     []read
	ends      []end     // of the server
	anomalies []anomaly // answers that are allowed only while the server ends
	known     []int64   // revisions that a client has seen

	counts counts // set by check
}

// end is the time from the request to stop the server until it had stopped.
type end struct{ from, to int64 }

// anomaly is an answer that a healthy server never gives, with the times of request and answer.
type anomaly struct {
	from, to int64
	what     string
	// ending marks an answer that a server may give while it ends.
	ending bool
}

// acked is an acknowledged write with its version.
type acked struct {
	name    string
	version int64
	at      int64 // time of the answer
}

// read is a get with a minimum revision.
type read struct {
	wanted  int64
	name    string
	version int64
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// next returns a unique value, which is also valid base64.
func (h *history) next() string { return fmt.Sprintf("%08d", h.value.Add(1)) }

// record adds an operation. A read without an answer is dropped, and so is a request that was never
// sent.
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

// learn records a revision that a client has seen.
func (h *history) learn(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = append(h.known, revision)
}

// revision returns a known revision, more likely a recent one; "" if there is none.
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

// ended records that the server has just ended; told is the time of the request to stop.
func (h *history) ended(told time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, end{int64(told.Sub(h.began)), h.now()})
}

// expect records an unexpected definite answer. A server that ends, has just started or is busy may
// give some of them.
func (h *history) expect(asked int64, err error, what string, codes ...int32) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return // no answer, or success
	}
	code := status.Status().Code
	if slices.Contains(append(codes, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout), code) {
		return
	}
	h.addAnomaly(asked, fmt.Sprintf("%s: %d %v", what, code, err), code >= http.StatusInternalServerError)
}

func (h *history) addAnomaly(asked int64, what string, ending bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.anomalies = append(h.anomalies, anomaly{asked, h.now(), what, ending})
}

// checkAnswers returns the first odd answer that the end of the server does not explain.
func (h *history) checkAnswers() error {
	for _, o := range h.anomalies {
		meanwhile := func(e end) bool { return e.from <= o.to && o.from <= e.to }
		if !o.ending || !slices.ContainsFunc(h.ends, meanwhile) {
			return fmt.Errorf("not an answer of a server that lives: %s", o.what)
		}
	}
	return nil
}

// settled returns the operations. Those without an answer last until the server's next end, since
// they may take effect until then. With several servers they last for ever, except for those that
// certainly had no effect.
func (h *history) settled(l *log) []porcupine.Operation {
	if h.several {
		return h.settledOfSeveral(l)
	}
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

// settledOfSeveral omits writes without an answer whose value is in no event, if watches saw all
// changes. They had no effect. Without that, there would be too many possible histories.
func (h *history) settledOfSeveral(l *log) (ops []porcupine.Operation) {
	happened := map[string]bool{}
	for _, c := range l.changes {
		happened[c.item.value], happened[c.item.status] = true, true
	}
	whole := h.last != 0 && len(l.spans) > 0 && l.reaches(l.spans[0].from) >= h.last
	for _, op := range h.ops {
		in := op.Input.(input)
		if op.Output.(output).outcome == unknown {
			// The event of a deletion lacks the value.
			ends := in.do == remove || in.do == sweep || in.holds && in.held == 0
			if in.dry || whole && !ends && !happened[in.value] {
				continue
			}
			op.Return = math.MaxInt64
		}
		ops = append(ops, op)
	}
	return ops
}

// lastAnomaly returns the last unexpected answer, for messages.
func (h *history) lastAnomaly() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.anomalies) == 0 {
		return "no unexpected answer"
	}
	return h.anomalies[len(h.anomalies)-1].what
}

// actor is a client that reads and writes a few names of one kind at random.
type actor struct {
	id     int
	kind   *kind
	h      *history
	api    api
	names  []string
	random *rand.Rand
	seen   map[string]item // the last state it saw of each name
}

// act does one operation after the other until ctx ends.
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

// request limits one request. Without an answer its outcome is unknown.
func request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*time.Second)
}

// outcomeOf returns the meaning of an answer for the object. Any answer that is not definite is
// unknown.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, new(*notSent)):
		return refused
	case notBegun(err):
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

// notBegun reports that the server says that nothing was written (ADR 68 and 71).
func notBegun(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "the disk of the store is full")
}

// do sends one request and records it.
func (a *actor) do(ctx context.Context, in input, send func(ctx context.Context) (item, error)) {
	ctx, cancel := request(ctx)
	defer cancel()
	call := a.h.now()
	got, err := send(ctx)
	a.h.expect(call, err, fmt.Sprintf("%+v", in), http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity)
	if in.dry {
		got = item{} // the result of a dry run
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

// get reads the newest state, or one with a minimum revision. The latter does not count as a read
// of the register.
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

// finalizers returns random finalizers; most objects have none.
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

// object returns the object that a create or update sends.
func (in input) object() item {
	return item{name: in.name, uid: in.uid, version: in.at, value: in.value, held: in.held, chosen: in.chosen}
}

// dry turns some of the writes into dry runs.
func (a *actor) dry(in input) (input, []string) {
	if a.random.IntN(8) > 0 {
		return in, nil
	}
	in.dry = true
	return in, []string{metav1.DryRunAll}
}

// patch changes the value, and sometimes the finalizers. It is a merge patch with preconditions, or
// a JSON patch that tests the value.
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

// apply creates the object or changes its value.
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

// report writes the status. The server must ignore the rest of the object.
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

// sweep deletes the collection, or the objects with the label. The server deletes them one by one.
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
	if notBegun(err) {
		out.outcome = unknown // some may have been deleted before
	}
	for _, in.name = range a.names {
		a.h.record(a.id, in, call, out)
	}
	if out.outcome == refused || out.outcome == unknown {
		pause(context.Background())
	}
}
