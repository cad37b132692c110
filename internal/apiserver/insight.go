package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/node"
	"github.com/knarr-project/knarr/internal/apiserver/past"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

// insight answers questions about the cluster and its past, at ask.Path. Authorization treats the
// paths as others that are no resources. An answer has only what the user may read.
type insight struct {
	cfg       *Config
	access    *access
	endpoints *registry.Kinds
	nodes     *node.Connector
	past      *past.Past          // nil without Config.History
	handler   func() http.Handler // the server's own
	client    func(auth.User) client.Interface
	questions questionCount
}

// maxRoots bounds the revisions of a question.
const maxRoots = 1000

// serve answers the questions about causes:
//
//	changes?group=&resource=&namespace=&name=  the writes of an object, newest first
//	changes?request=                           the writes of a request by its audit ID
//	trace?revision=                            what came of revisions, which commas separate
//	causes?revision=                           what led to revisions
//	records?revision=                          the writes of revisions
//	story?change= or story?group=&resource=…   the tree of a change, over all servers
//
// Config.Answerers answer other questions from objects as they are.
func (i *insight) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		wire.RespondError(w, wire.ErrorFormat(r), wire.ErrMethodNotAllowed)
		return
	}
	if answer := i.cfg.Answerers[strings.TrimPrefix(r.URL.Path, ask.Path)]; answer != nil {
		i.explain(w, r, answer)
		return
	}
	if i.serveHistory(w, r) {
		return
	}
	if i.cfg.Causes == nil {
		wire.RespondError(w, wire.ErrorFormat(r), apierrors.NewServiceUnavailable("this server does not record the causes of writes (--causal-log-size=off)"))
		return
	}
	if r.URL.Path == ask.Path+"story" {
		i.serveStory(w, r)
		return
	}
	records, known, err := i.askCauses(r.Context(), strings.TrimPrefix(r.URL.Path, ask.Path), r.URL.Query())
	if err == nil && !known {
		wire.NotFoundPath(w)
		return
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(i.visible(r.Context(), records))
	}
	if err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	wire.Respond(w, http.StatusOK, wire.JSONFormat, body)
}

// askCauses returns the Records that answer a question; known is false for an unknown one.
func (i *insight) askCauses(ctx context.Context, question string, q url.Values) (records []causes.Record, known bool, err error) {
	log := i.cfg.Causes
	switch question {
	case "changes":
		if request := q.Get("request"); request != "" {
			records, err = log.OfRequest(ctx, request)
			return records, true, err
		}
		object := causes.Object{Group: q.Get("group"), Resource: q.Get("resource"), Namespace: q.Get("namespace"), Name: q.Get("name")}
		if object.Resource == "" || object.Name == "" {
			return nil, true, apierrors.NewBadRequest("resource and name, or request, must be given")
		}
		records, err = log.OfObject(ctx, object, 0)
		return records, true, err
	case "trace", "causes", "records":
		revisions, err := parseRevisions(q.Get("revision"))
		if err != nil {
			return nil, true, err
		}
		switch question {
		case "trace":
			records, err = log.Forward(ctx, revisions, 0)
		case "causes":
			records, err = log.Backward(ctx, revisions, 0)
		default:
			records, err = log.Of(ctx, revisions)
		}
		return records, true, err
	}
	return nil, false, nil
}

func parseRevisions(text string) (revisions []int64, err error) {
	if strings.Count(text, ",") >= maxRoots {
		return nil, apierrors.NewBadRequest("revision: at most " + strconv.Itoa(maxRoots) + " numbers are allowed")
	}
	for part := range strings.SplitSeq(text, ",") {
		revision, err := strconv.ParseInt(part, 10, 64)
		if err != nil || revision < 1 {
			return nil, apierrors.NewBadRequest("revision: " + strconv.Quote(part) + " is no revision: a number above 0")
		}
		revisions = append(revisions, revision)
	}
	return revisions, nil
}

// visible leaves out the Records of objects that the user may not get.
func (i *insight) visible(ctx context.Context, records []causes.Record) causes.Answer {
	user := i.gets(ctx)
	answer := causes.Answer{Records: make([]causes.Record, 0, len(records)), Truncated: len(records) >= causes.MaxAnswer}
	for _, r := range records {
		if !user.may(r.Object) {
			answer.Hidden++
			continue
		}
		answer.Records = append(answer.Records, r)
	}
	return answer
}

// maxRemembered bounds the number of decisions that a gets remembers.
const maxRemembered = 10000

// gets decides which objects the user of a question may get. One goroutine uses it.
type gets struct {
	*insight
	ctx   context.Context
	user  auth.User
	known map[causes.Object]bool
}

func (i *insight) gets(ctx context.Context) gets {
	user, _ := auth.UserFrom(ctx)
	return gets{insight: i, ctx: ctx, user: user, known: map[causes.Object]bool{}}
}

func (g *gets) may(o causes.Object) bool {
	may, known := g.known[o]
	if known {
		return may
	}
	a := auth.Attributes{User: g.user, Verb: "get", Namespace: o.Namespace, Group: o.Group, Version: "*", Resource: o.Resource, Name: o.Name}
	if e, ok := g.endpoints.Hub(o.Group, o.Resource); ok {
		a.Version = e.GVR.Version
	}
	if (schema.GroupResource{Group: o.Group, Resource: o.Resource}) == (schema.GroupResource{Resource: "namespaces"}) {
		a.Namespace = o.Name // as in the path of a namespace
	}
	may = g.access.authorize(g.ctx, a) == nil
	if len(g.known) < maxRemembered {
		g.known[o] = may
	}
	return may
}
