package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

// EventLimit limits the rate of Events: of all (Server), or per Namespace, User, or SourceAndObject
// (eventratelimit.admission.k8s.io/v1alpha1).
type EventLimit struct {
	Type string `json:"type"`
	// QPS and Burst configure a token bucket.
	QPS   int32 `json:"qps"`
	Burst int32 `json:"burst"`
	// CacheSize is the number of buckets kept; 0 means 4096.
	CacheSize int32 `json:"cacheSize,omitempty"`
}

const defaultEventBuckets = 4096

var eventLimitTypes = []string{"Server", "Namespace", "User", "SourceAndObject"}

// eventRateLimit refuses Events beyond the limits (off by default).
type eventRateLimit struct {
	base
	limits []*eventBuckets
}

type eventBuckets struct {
	EventLimit
	mu      sync.Mutex
	buckets *lru.Cache
}

// newEventRateLimit returns nil without limits, because the plugin would have no effect.
func newEventRateLimit(limits []EventLimit) (Plugin, error) {
	if len(limits) == 0 {
		return nil, nil
	}
	p := eventRateLimit{base: base{"EventRateLimit", []Operation{Create, Update}}}
	var errs field.ErrorList
	for i, l := range limits {
		at := field.NewPath("limits").Index(i)
		if !slices.Contains(eventLimitTypes, l.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, eventLimitTypes))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("event rate limit: %w", errs.ToAggregate())
	}
	for _, l := range limits {
		size := int(l.CacheSize)
		if size == 0 {
			size = defaultEventBuckets
		}
		p.limits = append(p.limits, &eventBuckets{EventLimit: l, buckets: lru.New(size)})
	}
	return p, nil
}

// Validate implements Validator.
func (p eventRateLimit) Validate(_ context.Context, a *Attributes) error {
	event, ok := a.Object.(*corev1.Event)
	if !ok || a.DryRun {
		return nil
	}
	for _, l := range p.limits {
		key := l.key(a, event)
		if !l.take(key) {
			return apierrors.NewTooManyRequestsError(fmt.Sprintf("limit reached on type %v for key %v", l.Type, key))
		}
	}
	return nil
}

func (l *eventBuckets) key(a *Attributes, e *corev1.Event) string {
	switch l.Type {
	case "Namespace":
		return a.Namespace
	case "User":
		return a.User.Name
	case "SourceAndObject":
		o := e.InvolvedObject
		return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
	}
	return ""
}

func (l *eventBuckets) take(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket, ok := l.buckets.Get(key)
	if !ok {
		bucket = flowcontrol.NewTokenBucketRateLimiter(float32(l.QPS), int(l.Burst))
		l.buckets.Add(key, bucket)
	}
	return bucket.(flowcontrol.RateLimiter).TryAccept()
}
