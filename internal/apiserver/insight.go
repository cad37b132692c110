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

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

// insightPath is the prefix of the paths that answer from the causal log. Authorization treats them
// as other paths that are no resources. An answer has only Records of objects that the user may
// get.
const insightPath = "/insight/v1/"

// maxRoots bounds the revisions of a question.
const maxRoots = 1000

// serveInsight answers the questions about causes:
//
//	changes?group=&resource=&namespace=&name=  the writes of an object, newest first
//	changes?request=                           the writes of a request by its audit ID
//	trace?revision=                            what came of revisions, which commas separate
//	causes?revision=                           what led to revisions
func (s *Server) serveInsight(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		wire.RespondError(w, wire.ErrorFormat(r), wire.ErrMethodNotAllowed)
		return
	}
	if s.cfg.Causes == nil {
		wire.RespondError(w, wire.ErrorFormat(r), apierrors.NewServiceUnavailable("this server does not record the causes of writes (--causal-log-size=off)"))
		return
	}
	records, known, err := s.askCauses(r.Context(), strings.TrimPrefix(r.URL.Path, insightPath), r.URL.Query())
	if err == nil && !known {
		wire.NotFoundPath(w)
		return
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(s.visible(r.Context(), records))
	}
	if err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	wire.Respond(w, http.StatusOK, wire.JSONFormat, body)
}

// askCauses returns the Records that answer a question; known is false for an unknown one.
func (s *Server) askCauses(ctx context.Context, question string, q url.Values) (records []causes.Record, known bool, err error) {
	log := s.cfg.Causes
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
	case "trace", "causes":
		revisions, err := parseRevisions(q.Get("revision"))
		if err != nil {
			return nil, true, err
		}
		closure := log.Forward
		if question == "causes" {
			closure = log.Backward
		}
		records, err = closure(ctx, revisions, 0)
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
func (s *Server) visible(ctx context.Context, records []causes.Record) causes.Answer {
	user, _ := auth.UserFrom(ctx)
	allowed := map[causes.Object]bool{}
	answer := causes.Answer{Records: make([]causes.Record, 0, len(records)), Truncated: len(records) >= causes.MaxAnswer}
	for _, r := range records {
		may, known := allowed[r.Object]
		if !known {
			a := auth.Attributes{User: user, Verb: "get", Namespace: r.Namespace, Group: r.Group, Version: "*", Resource: r.Resource, Name: r.Name}
			if e, ok := s.endpoints.Hub(r.Group, r.Resource); ok {
				a.Version = e.GVR.Version
			}
			if (schema.GroupResource{Group: r.Group, Resource: r.Resource}) == (schema.GroupResource{Resource: "namespaces"}) {
				a.Namespace = r.Name // as in the path of a namespace
			}
			may = s.access.authorize(ctx, a) == nil
			allowed[r.Object] = may
		}
		if !may {
			answer.Hidden++
			continue
		}
		answer.Records = append(answer.Records, r)
	}
	return answer
}
