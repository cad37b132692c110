package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
)

// verdict is the condition Available with its reason.
type verdict struct {
	status          apiregistrationv1.ConditionStatus
	reason, message string
}

var passed = verdict{apiregistrationv1.ConditionTrue, "Passed", "all checks passed"}

func unavailable(reason, format string, args ...any) verdict {
	return verdict{apiregistrationv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

// checkService checks the Service of the server and its endpoints.
func checkService(ref *apiregistrationv1.ServiceReference, service *corev1.Service, slices []*discoveryv1.EndpointSlice) verdict {
	if service == nil {
		return unavailable("ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP && service.Spec.Type != "" {
		return passed // the endpoints of other Service types are not checked
	}
	name, ok := client.PortName(service, *ref.Port)
	if !ok {
		return unavailable("ServicePortError", "service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, *ref.Port)
	}
	if len(slices) == 0 {
		return unavailable("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)
	}
	if len(client.ReadyAddresses(slices, name)) == 0 {
		return unavailable("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name)
	}
	return passed
}

// checkNow checks the server now.
func (r *Remote) checkNow() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// maxRetryInterval is the longest pause between two checks of a server that does not answer.
const maxRetryInterval = 30 * time.Second

// monitor checks the server on every change of its Service, and periodically, until the remote is
// closed.
func (r *Remote) monitor(process context.Context) {
	ctx, cancel := context.WithCancel(process)
	defer cancel()
	defer context.AfterFunc(r.context, cancel)()
	retry := time.Duration(0)
	for ctx.Err() == nil {
		// The Views serve all remotes, so they live as long as the process.
		v := r.check(ctx, r.aggregator.openNetwork(process))
		if ctx.Err() != nil {
			return
		}
		r.publish(ctx, v)
		wait := r.aggregator.cfg.CheckEvery
		if v != passed {
			retry = min(max(2*retry, 250*time.Millisecond), maxRetryInterval)
			wait = retry
		} else {
			retry = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// check finds out whether the server is available, and updates its discovery document. err is why
// Services cannot be read, if so.
func (r *Remote) check(ctx context.Context, err error) verdict {
	var service *corev1.Service
	var slices []*discoveryv1.EndpointSlice
	if err == nil {
		service, slices, err = r.service()
	}
	if err != nil {
		return unavailable("ServiceAccessError", "service/%s in %q cannot be checked due to: %v", r.spec.Service.Name, r.spec.Service.Namespace, err)
	}
	if v := checkService(r.spec.Service, service, slices); v != passed {
		return v
	}
	location, err := r.location()
	if err != nil {
		return unavailable("FailedDiscoveryCheck", "%v", err)
	}
	location.Path = "/apis/" + r.gv.String()
	if err := r.discover(ctx, location.String()); err != nil {
		return unavailable("FailedDiscoveryCheck", "failing or missing response from %s: %v", location, err)
	}
	return passed
}

// discoveryTimeout limits a request for the discovery document.
const discoveryTimeout = 5 * time.Second

// request fetches a document as the aggregator itself.
func (r *Remote) request(ctx context.Context, url, accept string, timeout time.Duration) (*http.Response, error) {
	if r.transportErr != nil {
		return nil, r.transportErr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	setUser(req, auth.User{Name: "system:kube-aggregator", Groups: []string{auth.GroupMasters}})
	// Do not follow redirects: the user's headers are only for this server.
	ownAnswer := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return (&http.Client{Transport: r.plain, CheckRedirect: ownAnswer, Timeout: timeout}).Do(req)
}

func (r *Remote) discover(ctx context.Context, url string) error {
	resp, err := r.request(ctx, url, "application/json", discoveryTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("bad status from %s: %d", url, resp.StatusCode)
	}
	resources, err := readResources(resp.Body)
	if err != nil {
		r.setResources(discoveryResult{stale: true}) // an answer without a document
		return nil
	}
	r.setResources(discoveryResult{resources: resources})
	return nil
}

// setResources stores and announces what the server serves.
func (r *Remote) setResources(now discoveryResult) {
	before := r.discovered.Load()
	if now.stale && before != nil && now.resources == nil {
		now.resources = before.resources
	}
	if before != nil && before.stale == now.stale && equality.Semantic.DeepEqual(before.resources, now.resources) {
		return
	}
	r.discovered.Store(&now)
	r.aggregator.revision.Add(1)
}

// Checked reports whether the server was checked since its APIService was created or changed.
func (r *Remote) Checked() bool { return r.checked.Load() }

// publish reports the verdict: to requests, to discovery and in the APIService's status.
func (r *Remote) publish(ctx context.Context, v verdict) {
	ok := v == passed
	if !ok {
		r.setResources(discoveryResult{stale: true})
	}
	r.aggregator.metrics.observe(r, v)
	if r.available.Swap(ok) != ok && ok {
		r.aggregator.specs.refetch(r.aggregator)
	}
	r.checked.Store(true)
	if !r.aggregator.cfg.Reports() {
		return
	}
	if err := r.writeCondition(ctx, v); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		r.aggregator.cfg.Logger.Warn("the condition of an APIService was not written", "apiservice", r.name, "err", err)
	}
}

// writeCondition updates the condition Available if it differs.
func (r *Remote) writeCondition(ctx context.Context, v verdict) error {
	for attempt := 0; ; attempt++ {
		object, err := client.Get[*apiregistrationv1.APIService](ctx, r.aggregator.cfg.Client, "", r.name)
		if err != nil || object.UID != r.uid {
			return err
		}
		if !setCondition(object, v, metav1.NewTime(r.aggregator.cfg.Clock())) {
			return nil
		}
		var version because.Revisions
		version.AddObject(object)
		_, err = client.UpdateStatus(because.With(ctx, version), r.aggregator.cfg.Client, object)
		if !apierrors.IsConflict(err) || attempt == 3 {
			return err
		}
	}
}

// setCondition reports whether it changed the object.
func setCondition(object *apiregistrationv1.APIService, v verdict, now metav1.Time) bool {
	want := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: now,
	}
	for i := range object.Status.Conditions {
		have := &object.Status.Conditions[i]
		if have.Type != apiregistrationv1.Available {
			continue
		}
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		changed := *have != want
		*have = want
		return changed
	}
	object.Status.Conditions = append(object.Status.Conditions, want)
	return true
}

func available(object *apiregistrationv1.APIService) bool {
	for _, c := range object.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c.Status == apiregistrationv1.ConditionTrue
		}
	}
	return false
}
