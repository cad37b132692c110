package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/flow"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/client"
)

// flowControl limits concurrent requests by API Priority and Fairness (KEP-1040), and keeps its
// objects.
type flowControl struct {
	gate    *flow.Gate // nil does not limit
	kinds   *registry.Kinds
	client  client.Interface // the server's own
	metrics *telemetry.Metrics
	log     *slog.Logger
	clock   func() time.Time
	exempt  func(path string) bool // paths whose requests take no seats
}

// enter waits for the request's seats. Streams other than watches need none: they live as long
// as client and server want.
func (fc *flowControl) enter(ctx context.Context, w *telemetry.ResponseRecorder, info *wire.RequestInfo, user auth.User) bool {
	if fc.gate == nil || info.LongRunning() && info.Verb != "watch" || fc.exempt(info.Path) {
		return true
	}
	a := wire.RequestAttributes(user, info)
	var err error
	w.Seats, err = fc.gate.Enter(ctx, &a, func(most int) int { return fc.seatsFor(ctx, info, most) })
	w.Queued = w.Seats.Waited
	if uid := w.Seats.SchemaUID(); uid != "" {
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", string(uid))
		w.Header().Set("X-Kubernetes-Pf-Prioritylevel-Uid", string(w.Seats.LevelUID()))
	}
	if err == nil {
		return true
	}
	fc.metrics.Terminated(info, http.StatusTooManyRequests)
	w.Header().Set("Retry-After", strconv.Itoa(w.Seats.RetryAfter))
	wire.RecordOf(w).Status(wire.StatusOf(apierrors.NewTooManyRequests(err.Error(), w.Seats.RetryAfter)))
	http.Error(w, err.Error(), http.StatusTooManyRequests)
	return false
}

// A list takes a seat for every hundred objects that it may have to look at, ten at most.
const (
	objectsPerSeat = 100
	maxSeats       = 10
)

func (fc *flowControl) seatsFor(ctx context.Context, info *wire.RequestInfo, most int) int {
	if info.Verb != "list" {
		return 1
	}
	e, ok := fc.kinds.Find(info.GVR)
	if !ok || e.Kind.Virtual {
		return 1
	}
	reader := e.OpenCache()
	if reader == nil {
		return 1
	}
	n := countUpTo(reader.Snapshot(), e.Prefix(info.Namespace), info.Namespace != "", objectsPerSeat*maxSeats)
	if limit, err := strconv.Atoi(info.Query.Get("limit")); err == nil && limit > 0 {
		n = min(n, limit)
	}
	return min(max((n+objectsPerSeat-1)/objectsPerSeat, 1), maxSeats, most)
}

// countUpTo counts the objects below prefix, or all objects of the kind, up to most.
func countUpTo(snapshot *cache.Snapshot, prefix string, some bool, most int) int {
	if !some {
		return min(snapshot.Len(), most)
	}
	n := 0
	snapshot.Ascend(prefix, "", func(*cache.Entry) bool {
		n++
		return n < most
	})
	return n
}

// follow keeps the gate, the conditions of FlowSchemas and the bootstrap objects up to date.
func (fc *flowControl) follow(ctx context.Context) {
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	schemas, err := client.Open[*flowcontrolv1.FlowSchema](ctx, fc.client, client.Scope{})
	if err != nil {
		fc.log.Error("requests are not limited", "err", err)
		return
	}
	levels, err := client.Open[*flowcontrolv1.PriorityLevelConfiguration](ctx, fc.client, client.Scope{})
	if err != nil {
		fc.log.Error("requests are not limited", "err", err)
		return
	}
	_, schemasDone := schemas.Subscribe(ctx, func(client.TypedEvent[*flowcontrolv1.FlowSchema]) { wake() })
	_, levelsDone := levels.Subscribe(ctx, func(client.TypedEvent[*flowcontrolv1.PriorityLevelConfiguration]) { wake() })
	defer func() { <-schemasDone; <-levelsDone }()
	writes := conditionWrites{}
	for {
		fc.gate.Configure(withMandatory(schemas.List("", nil), levels.List("", nil)))
		retry := make(<-chan time.Time)
		again, err := fc.keep(ctx, schemas, levels, writes)
		if err != nil && ctx.Err() == nil {
			fc.log.Debug("flow control objects were not written, trying again", "err", err)
			again = time.Second
		}
		if again > 0 {
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry:
		}
	}
}

// withMandatory adds the mandatory objects if they are missing, so that every request has a flow
// schema and a priority level.
func withMandatory(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) ([]*flowcontrolv1.FlowSchema, []*flowcontrolv1.PriorityLevelConfiguration) {
	have := map[string]bool{}
	for _, o := range schemas {
		have["schema "+o.Name] = true
	}
	for _, o := range levels {
		have["level "+o.Name] = true
	}
	for _, obj := range flowControlObjects() {
		switch o := obj.(type) {
		case *flowcontrolv1.FlowSchema:
			if mandatory(o.Name) && !have["schema "+o.Name] {
				schemas = append(schemas, o)
			}
		case *flowcontrolv1.PriorityLevelConfiguration:
			if mandatory(o.Name) && !have["level "+o.Name] {
				levels = append(levels, o)
			}
		}
	}
	return schemas, levels
}

func mandatory(name string) bool { return name == "exempt" || name == "catch-all" }

// conditionWrites are the times within the last minute at which conditions of FlowSchemas were
// written, by schema name. They limit the writes per minute, so that servers of different versions
// that disagree do not overwrite each other without end (KEP-1040).
type conditionWrites map[string][]time.Time

const maxConditionWrites = 6 // per minute

// wait returns how long to wait before the schema's condition may be written again.
func (c conditionWrites) wait(schema string, now time.Time) time.Duration {
	recent := slices.DeleteFunc(c[schema], func(at time.Time) bool { return now.Sub(at) >= time.Minute })
	if c[schema] = recent; len(recent) == 0 {
		delete(c, schema)
	}
	if len(recent) < maxConditionWrites {
		return 0
	}
	return time.Minute - now.Sub(recent[0])
}

// keep restores the bootstrap objects of flow control: the mandatory ones always, the suggested
// ones unless a user has taken them over. The bootstrapper creates missing ones. keep also writes
// the Dangling conditions. again is the delay after which it must run again, 0 if there is none.
func (fc *flowControl) keep(ctx context.Context, schemas client.ViewOf[*flowcontrolv1.FlowSchema], levels client.ViewOf[*flowcontrolv1.PriorityLevelConfiguration], writes conditionWrites) (again time.Duration, err error) {
	for _, obj := range flowControlObjects() {
		switch want := obj.(type) {
		case *flowcontrolv1.FlowSchema:
			have, ok := schemas.Get("", want.Name)
			fc.applyDefaultsOf(want)
			if ok && (mandatory(want.Name) || autoUpdated(have)) && !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
				next := have.DeepCopy()
				next.Spec = want.Spec
				err = fc.update(ctx, next)
			}
		case *flowcontrolv1.PriorityLevelConfiguration:
			have, ok := levels.Get("", want.Name)
			fc.applyDefaultsOf(want)
			if ok && (mandatory(want.Name) || autoUpdated(have)) && !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
				next := have.DeepCopy()
				next.Spec = want.Spec
				err = fc.update(ctx, next)
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	for _, schema := range schemas.List("", nil) {
		_, found := levels.Get("", schema.Spec.PriorityLevelConfiguration.Name)
		dangling, changed := wantedDanglingCondition(schema, !found, fc.kinds.Shared.Now())
		if !changed {
			continue
		}
		now := fc.clock()
		if wait := writes.wait(schema.Name, now); wait > 0 {
			if again == 0 || wait < again {
				again = wait
			}
			continue
		}
		writes[schema.Name] = append(writes[schema.Name], now)
		if err := fc.applyCondition(ctx, schema, dangling); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	return again, nil
}

// update writes a bootstrap object back as the manager that created it.
func (fc *flowControl) update(ctx context.Context, obj client.Object) error {
	_, err := fc.client.Update(ctx, api.ResourceOf(obj), obj, metav1.UpdateOptions{FieldManager: flowProducer})
	return err
}

// flowManager owns the Dangling conditions of FlowSchemas. It is upstream's name, so that knarr and
// upstream can take over from each other.
const flowManager = "api-priority-and-fairness-config-consumer-v1"

// flowProducer owns the bootstrap objects; this is upstream's name, too.
const flowProducer = "api-priority-and-fairness-config-producer-v1"

// applyCondition applies only this condition. Other conditions may be newer than the schema in
// memory.
func (fc *flowControl) applyCondition(ctx context.Context, schema *flowcontrolv1.FlowSchema, condition flowcontrolv1.FlowSchemaCondition) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": flowcontrolv1.SchemeGroupVersion.String(), "kind": "FlowSchema",
		"metadata": map[string]any{"name": schema.Name, "uid": schema.UID},
		"status":   flowcontrolv1.FlowSchemaStatus{Conditions: []flowcontrolv1.FlowSchemaCondition{condition}},
	})
	if err != nil {
		return err
	}
	force := true
	_, err = fc.client.Patch(ctx, flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"), "", schema.Name, types.ApplyYAMLPatchType, body,
		metav1.PatchOptions{FieldManager: flowManager, Force: &force}, "status")
	return err
}

func (fc *flowControl) applyDefaultsOf(obj client.Object) {
	switch obj.(type) {
	case *flowcontrolv1.FlowSchema:
		fc.kinds.Registry(flowcontrolv1.GroupName, "flowschemas").ApplyDefaults(obj)
	case *flowcontrolv1.PriorityLevelConfiguration:
		fc.kinds.Registry(flowcontrolv1.GroupName, "prioritylevelconfigurations").ApplyDefaults(obj)
	}
}

// autoUpdated reports whether this server maintains the object: by its annotation or, if there is
// none, because its spec was never changed.
func autoUpdated(obj metav1.Object) bool {
	value, ok := obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]
	if !ok {
		return obj.GetGeneration() <= 1
	}
	auto, err := strconv.ParseBool(value)
	return err == nil && auto
}

// wantedDanglingCondition returns the schema's wanted condition, and whether it must be written. A
// difference in the transition time alone is no change.
func wantedDanglingCondition(schema *flowcontrolv1.FlowSchema, dangling bool, now metav1.Time) (want flowcontrolv1.FlowSchemaCondition, changed bool) {
	level := schema.Spec.PriorityLevelConfiguration.Name
	want = flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found", LastTransitionTime: now,
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
	}
	if dangling {
		want.Status, want.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	}
	for _, have := range schema.Status.Conditions {
		if have.Type != want.Type {
			continue
		}
		have.LastTransitionTime = want.LastTransitionTime
		return want, have != want
	}
	return want, true
}

// serve serves upstream's debug pages about queues and priority levels.
func (fc *flowControl) serve(w http.ResponseWriter, r *http.Request) {
	if fc.gate == nil {
		wire.NotFoundPath(w)
		return
	}
	var page strings.Builder
	found, err := fc.gate.Show(&page, strings.TrimPrefix(r.URL.Path, flowControlPath), r.URL.Query().Has("includeRequestDetails"))
	switch {
	case err != nil:
		wire.RespondError(w, wire.JSONFormat, err)
	case !found:
		wire.NotFoundPath(w)
	default:
		plainText(w)
		_, _ = w.Write([]byte(page.String())) // the client may be gone
	}
}

const flowControlPath = "/debug/api_priority_and_fairness/"
