package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const valueKey = "value"

// history is what all clients of one round saw.
type history struct {
	began time.Time
	value atomic.Int64 // the last unique value given out

	mu     sync.Mutex // guards what follows
	ops    []porcupine.Operation
	acked  []acked
	lists  []listing
	deaths []int64 // when the server had ended
}

// acked is a write that was acknowledged with its version.
type acked struct {
	name    string
	version int64
	at      int64 // when the answer came
}

// listing is one list as a client got it.
type listing struct {
	asked    int64
	revision int64
	// consistent: the client asked for the newest state, not for some revision.
	consistent bool
	items      map[string]int64 // name → version
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// record adds an operation. A read without an answer says nothing, and what was refused before it was sent did not happen.
func (h *history) record(client int, in input, call int64, out output) {
	if out.outcome == refused || (out.outcome == unknown && in.do == get) {
		return
	}
	returned := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: returned})
	if v, err := strconv.ParseInt(out.version, 10, 64); err == nil && out.outcome == done && in.do != get {
		h.acked = append(h.acked, acked{name: in.name, version: v, at: returned})
	}
}

// died notes that the server has just ended.
func (h *history) died() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaths = append(h.deaths, h.now())
}

// settled are the operations, with those that had no answer drawn out to the server's next death: until then they may take effect.
func (h *history) settled() []porcupine.Operation {
	ops := slices.Clone(h.ops)
	for i := range ops {
		if ops[i].Output.(output).outcome != unknown {
			continue
		}
		end := int64(math.MaxInt64)
		for _, death := range h.deaths {
			if death > ops[i].Return {
				end = min(end, death)
			}
		}
		ops[i].Return = end
	}
	return ops
}

// actor is one client that reads and writes a few names at random.
type actor struct {
	id      int
	h       *history
	api     corev1client.ConfigMapInterface
	names   []string
	random  *rand.Rand
	version map[string]string // what it saw last of each name
}

// act does one thing after the other until ctx ends.
func (a *actor) act(ctx context.Context) {
	for ctx.Err() == nil {
		name := a.names[a.random.IntN(len(a.names))]
		switch n := a.random.IntN(20); {
		case n < 6:
			a.get(ctx, name)
		case n < 9:
			a.create(ctx, name)
		case n < 14:
			a.update(ctx, name)
		case n < 17:
			a.remove(ctx, name)
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
	}
	return unknown
}

func (a *actor) finish(in input, call int64, obj *corev1.ConfigMap, err error) {
	out := output{outcome: outcomeOf(err)}
	if err == nil && obj != nil {
		out.version = obj.ResourceVersion
		if in.do == get {
			out.value = obj.Data[valueKey]
		}
		a.version[in.name] = obj.ResourceVersion
	}
	a.h.record(a.id, in, call, out)
	if out.outcome == refused || out.outcome == unknown {
		pause(context.Background())
	}
}

func (a *actor) get(ctx context.Context, name string) {
	ctx, cancel := request(ctx)
	defer cancel()
	in, call := input{do: get, name: name}, a.h.now()
	obj, err := a.api.Get(ctx, name, metav1.GetOptions{})
	a.finish(in, call, obj, err)
}

func (a *actor) create(ctx context.Context, name string) {
	ctx, cancel := request(ctx)
	defer cancel()
	in, call := input{do: create, name: name, value: a.h.next()}, a.h.now()
	obj, err := a.api.Create(ctx, a.object(in), metav1.CreateOptions{})
	a.finish(in, call, obj, err)
}

func (a *actor) update(ctx context.Context, name string) {
	ctx, cancel := request(ctx)
	defer cancel()
	in := input{do: update, name: name, value: a.h.next()}
	if a.random.IntN(3) > 0 {
		in.at = a.version[name]
	}
	call := a.h.now()
	obj, err := a.api.Update(ctx, a.object(in), metav1.UpdateOptions{})
	a.finish(in, call, obj, err)
}

func (a *actor) remove(ctx context.Context, name string) {
	ctx, cancel := request(ctx)
	defer cancel()
	in := input{do: remove, name: name}
	var opts metav1.DeleteOptions
	if seen := a.version[name]; seen != "" && a.random.IntN(2) > 0 {
		in.at, opts.Preconditions = seen, &metav1.Preconditions{ResourceVersion: &seen}
	}
	call := a.h.now()
	err := a.api.Delete(ctx, name, opts)
	a.finish(in, call, nil, err)
}

// list reads all names, page by page at times. A whole consistent list is also a read of each name.
func (a *actor) list(ctx context.Context) {
	ctx, cancel := request(ctx)
	defer cancel()
	opts := metav1.ListOptions{}
	if a.random.IntN(2) > 0 {
		opts.Limit = 2
	}
	if a.random.IntN(4) == 0 {
		opts.ResourceVersion = "0"
	}
	l := listing{asked: a.h.now(), consistent: opts.ResourceVersion == "", items: map[string]int64{}}
	seen := map[string]output{}
	for {
		page, err := a.api.List(ctx, opts)
		if err != nil {
			return // also a page whose revision was compacted: nothing was learned
		}
		l.revision, _ = strconv.ParseInt(page.ResourceVersion, 10, 64)
		for i := range page.Items {
			obj := &page.Items[i]
			l.items[obj.Name], _ = strconv.ParseInt(obj.ResourceVersion, 10, 64)
			seen[obj.Name] = output{outcome: done, value: obj.Data[valueKey], version: obj.ResourceVersion}
		}
		if page.Continue == "" {
			break
		}
		opts = metav1.ListOptions{Limit: opts.Limit, Continue: page.Continue}
	}
	a.h.mu.Lock()
	a.h.lists = append(a.h.lists, l)
	a.h.mu.Unlock()
	if !l.consistent {
		return
	}
	for _, name := range a.names {
		out, ok := seen[name]
		if !ok {
			out.outcome = notFound
		}
		a.h.record(a.id, input{do: get, name: name}, l.asked, out)
	}
}

func (h *history) next() string { return fmt.Sprint(h.value.Add(1)) }

// object is what a write sends. Half of them carry the label that the selecting watcher looks for.
func (a *actor) object(in input) *corev1.ConfigMap {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: in.name, ResourceVersion: in.at}, Data: map[string]string{valueKey: in.value}}
	if a.random.IntN(2) > 0 {
		obj.Labels = map[string]string{"chosen": "yes"}
	}
	return obj
}
