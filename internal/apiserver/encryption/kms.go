package encryption

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/uuid"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	"k8s.io/kms/pkg/service"
)

// plugin is a key management service (KMS v2): it encrypts the seed of our keys, which encrypt the values.
type plugin struct {
	config  apiserverconfig.KMSConfiguration
	service service.Service
	end     context.CancelFunc

	mu    sync.Mutex // guards state
	state kmsv2.State
}

// A seed is used as long as the plugin names the same key; it is asked this often. When it does not answer, writing goes on with the
// seed there is for as long as it was last known to be good.
const (
	pluginAskEvery = time.Minute
	pluginGoodFor  = 3 * time.Minute
)

// addPlugin uses a plugin of an earlier configuration or connects to a new one.
func (r *rules) addPlugin(ctx context.Context, c *apiserverconfig.KMSConfiguration, before *rules) ([]value.PrefixTransformer, error) {
	if c.APIVersion != "v2" {
		return nil, fmt.Errorf("kms %s: apiVersion %q is not supported, only v2", c.Name, c.APIVersion)
	}
	p := r.kms[c.Name]
	if p == nil && before != nil && before.kms[c.Name] != nil && reflect.DeepEqual(before.kms[c.Name].config, *c) {
		p = before.kms[c.Name]
	}
	if p == nil {
		var err error
		if p, err = connect(ctx, c); err != nil {
			return nil, fmt.Errorf("kms %s: %w", c.Name, err)
		}
	}
	r.kms[c.Name] = p
	t := kmsv2.NewEnvelopeTransformer(p.service, c.Name, p.current, "")
	return []value.PrefixTransformer{{Prefix: []byte("k8s:enc:kms:v2:" + c.Name + ":"), Transformer: t}}, nil
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
	return &plugin{config: *c, service: s, end: cancel}, nil
}

// refresh asks for the present key and makes a seed for it if it is a new one.
func (p *plugin) refresh(ctx context.Context) error {
	status, err := p.service.Status(ctx)
	if err != nil {
		return err
	}
	if status.Healthz != "ok" {
		return fmt.Errorf("the plugin says: %s", status.Healthz)
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

// current is what the envelope transformer writes with.
func (p *plugin) current() (kmsv2.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Transformer == nil {
		return kmsv2.State{}, errors.New("the key management service has not answered yet")
	}
	return p.state, nil
}
