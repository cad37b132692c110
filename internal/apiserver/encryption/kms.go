package encryption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	envelope "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics"
	"k8s.io/kms/pkg/service"

	"github.com/knarr-project/knarr/internal/zpages"
)

// plugin is a key management service (KMS v2). It encrypts the seed of the keys that encrypt the
// values.
type plugin struct {
	config      apiserverconfig.KMSConfiguration
	service     service.Service
	transformer value.Transformer // with the decrypted seeds
	close       context.CancelFunc

	askMu sync.Mutex // held while the plugin's status is requested

	mu    sync.Mutex // guards the following fields
	state kmsv2.State
	asked time.Time // time of the last request, whose result is err
	err   error
}

// A seed is used as long as the plugin names the same key. The plugin is asked for it every
// statusInterval. If it does not answer, writes continue with the last seed for seedValidFor after
// it was confirmed.
const (
	statusInterval = time.Minute
	seedValidFor   = 3 * time.Minute
)

// How long a health check uses the plugin's last answer: a good one, or a bad one.
const (
	healthyFor   = 20 * time.Second
	unhealthyFor = 3 * time.Second
)

// addPlugin reuses a plugin of an earlier configuration or connects to a new one.
func (r *rules) addPlugin(ctx context.Context, c *apiserverconfig.KMSConfiguration, before *rules) ([]value.PrefixTransformer, error) {
	if c.APIVersion != "v2" {
		return nil, fmt.Errorf("kms %s: apiVersion %q is not supported, only v2", c.Name, c.APIVersion)
	}
	p := r.plugin(c)
	if p == nil {
		if p = before.plugin(c); p == nil {
			var err error
			if p, err = connect(ctx, c); err != nil {
				return nil, fmt.Errorf("kms %s: %w", c.Name, err)
			}
		}
		r.kms = append(r.kms, p)
	}
	return []value.PrefixTransformer{{Prefix: []byte("k8s:enc:kms:v2:" + c.Name + ":"), Transformer: p.transformer}}, nil
}

// plugin returns the plugin with that configuration, or nil.
func (r *rules) plugin(c *apiserverconfig.KMSConfiguration) *plugin {
	if r == nil {
		return nil
	}
	for _, p := range r.kms {
		if reflect.DeepEqual(p.config, *c) {
			return p
		}
	}
	return nil
}

// closeUnused closes the connections to the plugins that the other rules do not use.
func (r *rules) closeUnused(others *rules) {
	for _, p := range r.kms {
		if others == nil || !slices.Contains(others.kms, p) {
			p.close()
		}
	}
}

func connect(ctx context.Context, c *apiserverconfig.KMSConfiguration) (*plugin, error) {
	timeout := 3 * time.Second
	if c.Timeout != nil {
		timeout = c.Timeout.Duration
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := kmsv2.NewGRPCService(ctx, c.Endpoint, c.Name, timeout)
	if err != nil {
		cancel()
		return nil, err
	}
	p := &plugin{config: *c, service: s, close: cancel}
	p.transformer = kmsv2.NewEnvelopeTransformer(p.service, c.Name, p.current, zpages.Identity())
	return p, nil
}

// refresh requests the current key, and creates a seed if the key is new.
func (p *plugin) refresh(ctx context.Context) error {
	p.askMu.Lock()
	defer p.askMu.Unlock()
	return p.ask(ctx)
}

// noAnswerError means that the plugin did not answer the request for its status.
type noAnswerError struct {
	plugin string
	cause  error
}

func (e noAnswerError) Error() string {
	return fmt.Sprintf("failed to perform status section of the healthz check for KMS Provider %s, error: %v", e.plugin, e.cause)
}

func (e noAnswerError) Unwrap() error { return e.cause }

// health returns the result of refresh, or a recent one. As upstream, a recent failure to answer is
// reported by its cause alone.
func (p *plugin) health(ctx context.Context) error {
	p.askMu.Lock() // concurrent callers share one request
	defer p.askMu.Unlock()
	p.mu.Lock()
	asked, err := p.asked, p.err
	p.mu.Unlock()
	age := time.Since(asked)
	if err == nil && age < healthyFor || err != nil && age < unhealthyFor {
		if silent := (noAnswerError{}); errors.As(err, &silent) {
			return silent.cause
		}
		return err
	}
	return p.ask(ctx)
}

// ask is refresh with asking held.
func (p *plugin) ask(ctx context.Context) error {
	err := p.renew(ctx)
	if ctx.Err() != nil {
		return err // the plugin is not at fault
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.err = time.Now(), err
	return err
}

func (p *plugin) renew(ctx context.Context) error {
	status, err := p.service.Status(ctx)
	if err != nil {
		return noAnswerError{p.config.Name, err}
	}
	if result, err := kmsv2.ValidateKeyID(status.KeyID); err != nil {
		envelope.RecordInvalidKeyIDFromStatus(p.config.Name, string(result))
	} else {
		envelope.RecordKeyIDFromStatus(p.config.Name, status.KeyID, zpages.Identity())
	}
	if err := checkStatus(status); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", p.config.Name, err)
	}
	p.mu.Lock()
	same := p.state.Transformer != nil && p.state.EncryptedObjectKeyID == status.KeyID
	if same {
		p.state.ExpirationTimestamp = time.Now().Add(seedValidFor)
	}
	p.mu.Unlock()
	if same {
		return nil
	}
	uid := uuid.NewString()
	t, object, cacheKey, err := kmsv2.GenerateTransformer(ctx, uid, p.service, true)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = kmsv2.State{
		Transformer: t, EncryptedObjectKeyID: object.KeyID, EncryptedObjectEncryptedDEKSource: object.EncryptedDEKSource,
		EncryptedObjectAnnotations: object.Annotations, EncryptedObjectEncryptedDEKSourceType: object.EncryptedDEKSourceType,
		UID: uid, ExpirationTimestamp: time.Now().Add(seedValidFor), CacheKey: cacheKey, KMSProviderName: p.config.Name,
	}
	return nil
}

// checkStatus checks a plugin's status. v2beta1 is an older name of v2.
func checkStatus(s *service.StatusResponse) error {
	var errs []error
	if s.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", s.Healthz))
	}
	if s.Version != "v2" && s.Version != "v2beta1" {
		errs = append(errs, fmt.Errorf("expected KMSv2 API version v2, got %s", s.Version))
	}
	if _, err := kmsv2.ValidateKeyID(s.KeyID); err != nil {
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", kmsv2.GetHashIfNotEmpty(s.KeyID), err))
	}
	return utilerrors.Reduce(utilerrors.NewAggregate(errs))
}

// due reports whether to ask the plugin again: often while it is broken, seldom while it works.
func (p *plugin) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || now.Sub(p.asked) >= statusInterval
}

// current returns the state with which the envelope transformer encrypts.
func (p *plugin) current() (kmsv2.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Transformer == nil {
		return kmsv2.State{}, notReadyError{p.config.Name, cmp.Or(p.err, errNotAsked)}
	}
	return p.state, nil
}

// notReadyError means that there is no seed yet.
type notReadyError struct {
	plugin string
	cause  error
}

func (e notReadyError) Error() string {
	return fmt.Sprintf("key management service %s: %v", e.plugin, e.cause)
}

var errNotAsked = errors.New("it has not answered yet")

// temporary reports whether a decryption may succeed later, because the plugin did not answer
// properly. An answer that refuses the request is final.
func temporary(err error) bool {
	if many, ok := err.(utilerrors.Aggregate); ok { // errors.As does not look into aggregates
		return slices.ContainsFunc(many.Errors(), temporary)
	}
	if errors.As(err, new(notReadyError)) {
		return true
	}
	var answered interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answered) {
		return false
	}
	switch answered.GRPCStatus().Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss:
		return false
	}
	return true
}
