package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listing is a list as a client got it, or a part of one: the names after one name up to another.
type listing struct {
	asked       int64
	revision    int64
	after, upTo string // "" means no bound
	items       map[string]mark
	selecting   bool // with the label selector
	// consistent means that the client requested the newest state.
	consistent bool
	// wanted is the exact revision requested (exact), or the minimum; 0 means any.
	wanted int64
	exact  bool
}

// mark identifies the version of an object in a list.
type mark struct {
	version int64
	chosen  bool
}

func (i item) mark() mark {
	version, _ := strconv.ParseInt(i.version, 10, 64)
	return mark{version, i.chosen}
}

func (l *listing) add(items []item) {
	for _, i := range items {
		l.items[i.name] = i.mark()
	}
}

// list reads all names: the newest state, any, at least or exactly that of a revision, sometimes in
// pages. A complete consistent list also counts as a read of each name.
func (a *actor) list(ctx context.Context) {
	opts, l := metav1.ListOptions{}, listing{items: map[string]mark{}, selecting: a.random.IntN(4) == 0}
	if l.selecting {
		opts.LabelSelector = chosen
	}
	revision := a.h.revision(a.random)
	if a.random.IntN(2) > 0 {
		opts.Limit = int64(1 + a.random.IntN(2))
	}
	switch n := a.random.IntN(9); {
	case n < 3 && revision != "":
		opts.ResourceVersion, opts.ResourceVersionMatch, l.exact = revision, metav1.ResourceVersionMatchExact, true
	case n < 5 && revision != "":
		opts.ResourceVersion, opts.ResourceVersionMatch = revision, metav1.ResourceVersionMatchNotOlderThan
	case n < 6 && revision != "":
		// Without resourceVersionMatch, the revision is exact for pages, and a minimum for a whole
		// list.
		opts.ResourceVersion, l.exact = revision, opts.Limit > 0
	case n < 7:
		opts.ResourceVersion = "0"
	default:
		l.consistent = true
	}
	l.wanted, _ = strconv.ParseInt(opts.ResourceVersion, 10, 64)
	l.asked = a.h.now()
	items, whole := a.pages(ctx, opts, &l)
	if !whole || !l.consistent {
		return
	}
	seen := map[string]output{}
	for _, i := range items {
		seen[i.name] = output{outcome: done, item: i}
	}
	for _, name := range a.names {
		out, ok := seen[name]
		if !ok && l.selecting {
			continue
		}
		if !ok {
			out.outcome = notFound
		}
		a.h.record(a.id, input{do: get, name: name}, l.asked, out)
	}
}

// pages reads a list to its end and records it. whole reports that it has one revision: if that
// expires midway, the rest is read at the newest one.
func (a *actor) pages(ctx context.Context, opts metav1.ListOptions, l *listing) (items []item, whole bool) {
	whole = true
	for {
		page, meta, err := a.page(ctx, opts)
		if rest := restOf(err); rest != "" && opts.Continue != "" {
			a.note(*l, opts.Continue)
			whole = false
			*l = listing{after: l.upTo, items: map[string]mark{}, selecting: l.selecting, asked: a.h.now()}
			opts.Continue = rest
			continue
		}
		if err != nil {
			if opts.Continue != "" {
				a.note(*l, opts.Continue)
			}
			return nil, false
		}
		revision, _ := strconv.ParseInt(meta.ResourceVersion, 10, 64)
		if l.revision != 0 && l.revision != revision {
			// If a page has another revision, the check reports it.
			l.wanted, l.exact = l.revision, true
		}
		l.revision = revision
		l.add(page)
		items = append(items, page...)
		if len(page) > 0 {
			l.upTo = page[len(page)-1].name
		}
		if meta.Continue == "" {
			a.note(*l, "")
			return items, whole
		}
		opts = metav1.ListOptions{Limit: opts.Limit, LabelSelector: opts.LabelSelector, Continue: meta.Continue}
		if a.random.IntN(4) == 0 { // sometimes long enough for a compaction
			select {
			case <-time.After(time.Duration(a.random.IntN(int(2 * compactEvery)))):
			case <-ctx.Done():
			}
		}
	}
}

func (a *actor) page(ctx context.Context, opts metav1.ListOptions) ([]item, metav1.ListMeta, error) {
	ctx, cancel := request(ctx)
	defer cancel()
	asked := a.h.now()
	items, meta, err := a.api.list(ctx, opts)
	a.h.expect(asked, err, fmt.Sprintf("list %+v", opts), http.StatusGone)
	if outcome := outcomeOf(err); outcome == refused {
		pause(ctx)
	}
	return items, meta, err
}

// restOf returns the token to continue with after a list's revision has expired.
func restOf(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// note adds a part of a list to the history. Without more pages to come, the part reaches to the
// end.
func (a *actor) note(l listing, more string) {
	if l.revision == 0 {
		return // no page was received
	}
	if more == "" {
		l.upTo = ""
	}
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.h.lists = append(a.h.lists, l)
	a.h.known = append(a.h.known, l.revision)
}
