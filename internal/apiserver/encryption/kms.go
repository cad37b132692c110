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

// plugin is a key management service (KMS v2): it encrypts the seed of our keys, which encrypt the values.
type plugin struct {
	config      apiserverconfig.KMSConfiguration
	service     service.Service
	transformer value.Transformer // with the seeds that were decrypted
	end         context.CancelFunc

	asking sync.Mutex // held while the plugin is asked for its status

	mu    sync.Mutex // guards what follows
	state kmsv2.State
	asked time.Time // when the plugin was last asked, err what came of it
	err   error
}

// A seed is used as long as the plugin names the same key; it is asked this often. When it does not answer, writing goes on with the
// seed there is for as long as it was last known to be good.
const (
	pluginAskEvery = time.Minute
	pluginGoodFor  = 3 * time.Minute
)

// A health check believes what the plugin said so long ago.
const (
	fineFor   = 20 * time.Second
	brokenFor = 3 * time.Second
)

// addPlugin uses a plugin of an earlier configuration or connects to a new one.
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

// plugin is the one that is configured like that, or nil.
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

// endAllBut closes the connections to the plugins that the other rules do not use.
func (r *rules) endAllBut(others *rules) {
	for _, p := range r.kms {
		if others == nil || !slices.Contains(others.kms, p) {
			p.end()
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
	p := &plugin{config: *c, service: s, end: cancel}
	p.transformer = kmsv2.NewEnvelopeTransformer(p.service, c.Name, p.current, zpages.Identity())
	return p, nil
}

// refresh asks for the present key and makes a seed for it if it is a new one.
func (p *plugin) refresh(ctx context.Context) error {
	p.asking.Lock()
	defer p.asking.Unlock()
	return p.ask(ctx)
}

// silentError: the plugin did not say how it is.
type silentError struct {
	plugin string
	cause  error
}

func (e silentError) Error() string {
	return fmt.Sprintf("failed to perform status section of the healthz check for KMS Provider %s, error: %v", e.plugin, e.cause)
}

func (e silentError) Unwrap() error { return e.cause }

// health is what refresh says, or what it said a moment ago; of a plugin that did not answer then, only why, as upstream.
func (p *plugin) health(ctx context.Context) error {
	p.asking.Lock() // whoever asks at the same time gets the same answer
	defer p.asking.Unlock()
	p.mu.Lock()
	asked, err := p.asked, p.err
	p.mu.Unlock()
	age := time.Since(asked)
	if err == nil && age < fineFor || err != nil && age < brokenFor {
		if silent := (silentError{}); errors.As(err, &silent) {
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
		return err // says nothing about the plugin
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.err = time.Now(), err
	return err
}

func (p *plugin) renew(ctx context.Context) error {
	status, err := p.service.Status(ctx)
	if err != nil {
		return silentError{p.config.Name, err}
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
		p.state.ExpirationTimestamp = time.Now().Add(pluginGoodFor)
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
		UID: uid, ExpirationTimestamp: time.Now().Add(pluginGoodFor), CacheKey: cacheKey, KMSProviderName: p.config.Name,
	}
	return nil
}

// checkStatus judges what a plugin says of itself. v2beta1 is an older name of v2.
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

// due says whether the plugin is to be asked again: often while it is broken, seldom while it is fine.
func (p *plugin) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || now.Sub(p.asked) >= pluginAskEvery
}

// current is what the envelope transformer writes with.
func (p *plugin) current() (kmsv2.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Transformer == nil {
		return kmsv2.State{}, notReadyError{p.config.Name, cmp.Or(p.err, errNotAsked)}
	}
	return p.state, nil
}

// notReadyError: there is no seed yet.
type notReadyError struct {
	plugin string
	cause  error
}

func (e notReadyError) Error() string {
	return fmt.Sprintf("key management service %s: %v", e.plugin, e.cause)
}

var errNotAsked = errors.New("it has not answered yet")

// passing tells whether an error of decryption may be gone the next time: the plugin did not answer, or not well. An answer that says what
// is wrong with the request stands.
func passing(err error) bool {
	if many, ok := err.(utilerrors.Aggregate); ok { // which errors.As does not look into
		return slices.ContainsFunc(many.Errors(), passing)
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
