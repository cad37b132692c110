package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/transport"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/otlp"
	"github.com/knarr-project/knarr/internal/insight/trace"
)

// peerTimeout is how long one question to another server may take.
const peerTimeout = 5 * time.Second

// Peer is another API server of the cluster.
type Peer struct {
	Name string
	URL  string // such as https://10.0.0.2:6443
}

// serveStory answers with the tree of a change. It asks the causal logs of all servers, and reads
// objects and events with the rights of the user.
func (i *insight) serveStory(w http.ResponseWriter, r *http.Request) {
	tree, err := i.story(r.Context(), r.URL.Query())
	var body []byte
	if err == nil {
		body, err = json.Marshal(tree)
	}
	if err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return
	}
	wire.Respond(w, http.StatusOK, wire.JSONFormat, body)
}

func (i *insight) story(ctx context.Context, query url.Values) (*trace.Tree, error) {
	question, err := trace.ParseQuestion(query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	user, _ := auth.UserFrom(ctx)
	logs, done := i.causalLogs(ctx, user)
	defer done()
	answer, err := question.Ask(ctx, logs)
	if unknown := (*trace.UnknownError)(nil); errors.As(err, &unknown) {
		return nil, notRecorded(unknown)
	}
	if err != nil {
		return nil, err
	}
	tree := trace.Build(answer, trace.ReadFacts(ctx, factsReader{i.client(user)}, i.nodes.Spans, answer))
	tree.Missing = logs.Missing()
	return tree, nil
}

// factsReader reads the facts of a story as a user.
type factsReader struct{ client.Interface }

// Pod implements trace.Reader.
func (r factsReader) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return client.Get[*corev1.Pod](ctx, r.Interface, namespace, name)
}

// Events implements trace.Reader.
func (r factsReader) Events(ctx context.Context, namespace, uid string, limit int64) ([]corev1.Event, error) {
	list, err := r.List(ctx, corev1.SchemeGroupVersion.WithResource("events"), namespace, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", uid).String(), Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	return list.(*corev1.EventList).Items, nil
}

// Nodes implements trace.Reader.
func (r factsReader) Nodes(ctx context.Context, limit int64) (names []string, err error) {
	list, err := r.List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", metav1.ListOptions{Limit: limit})
	if err != nil {
		return nil, err
	}
	for i := range list.(*corev1.NodeList).Items {
		names = append(names, list.(*corev1.NodeList).Items[i].Name)
	}
	return names, nil
}

func notRecorded(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: err.Error(),
	}}
}

// causalLogs returns access to the causal logs of this server and of the others as the user. Each
// of them leaves out the objects that the user may not get; this one checks what the others send.
// Call done after the last question.
func (i *insight) causalLogs(ctx context.Context, user auth.User) (logs *trace.Servers, done func()) {
	logs = &trace.Servers{All: []trace.Server{{Name: "this server", Ask: func(ctx context.Context, question string, query url.Values) (causes.Answer, error) {
		records, _, err := i.askCauses(ctx, question, query)
		return i.visible(ctx, records), err
	}}}}
	if i.cfg.Peers == nil {
		return logs, func() {}
	}
	c := i.cfg.PeerHTTP()
	peers, err := i.cfg.Peers(ctx)
	if err != nil {
		logs.All = append(logs.All, trace.Server{Name: "the other servers", Ask: func(context.Context, string, url.Values) (causes.Answer, error) {
			return causes.Answer{}, err
		}})
	}
	for _, peer := range peers {
		remote := trace.Remote(&ask.Server{HTTP: c, URL: peer.URL, Prepare: func(r *http.Request) {
			transport.SetAuthProxyHeaders(r, user.Name, user.UID, user.Groups, user.Extra)
		}})
		logs.All = append(logs.All, trace.Server{Name: peer.Name + " (" + peer.URL + ")", Ask: func(ctx context.Context, question string, query url.Values) (causes.Answer, error) {
			ctx, cancel := context.WithTimeout(ctx, peerTimeout)
			defer cancel()
			answer, err := remote(ctx, question, query)
			seen := i.visible(ctx, answer.Records)
			seen.Hidden += answer.Hidden
			seen.Truncated = seen.Truncated || answer.Truncated
			return seen, err
		}})
	}
	return logs, c.CloseIdleConnections
}

// recorders are the causal log and the export of its writes.
type recorders struct {
	log     *causes.Log
	changes *otlp.Exporter
}

// Append implements registry.Recorder.
func (r recorders) Append(record *causes.Record) {
	r.log.Append(record)
	r.changes.Append(record)
}

// exportChanges exports the writes of the causal log, if it is configured. The export asks all
// servers for the causes that this one did not write.
func (s *Server) exportChanges() {
	if s.cfg.Changes == nil {
		return
	}
	s.metrics.Registry.MustRegister(s.cfg.Changes.Collectors()...)
	s.shared.Causes = recorders{s.cfg.Causes, s.cfg.Changes}
	s.cfg.Changes.Start(func(ctx context.Context, revision int64) ([]causes.Record, error) {
		user := auth.Component(auth.UserAPIServer, auth.GroupMasters)
		ctx = auth.WithUser(ctx, user)
		logs, done := s.insight.causalLogs(ctx, user)
		defer done()
		answer, err := logs.Backward(ctx, []int64{revision})
		return answer.Records, err
	})
}
