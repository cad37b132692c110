package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/egress"
)

// server is a webhook's server, configured by a kubeconfig file.
type server struct {
	url     string
	http    *http.Client
	timeout time.Duration
	backoff time.Duration // before the first retry
}

// Limits of one review: the number of attempts, and the size of the answer.
const (
	attempts   = 5
	maxAnswer  = 3 << 20
	firstPause = 500 * time.Millisecond
)

// newServer returns the server of a kubeconfig file. timeout limits a review with all its attempts,
// and is sent to the server. A nil dial connects directly.
func newServer(kubeconfig string, timeout time.Duration, dial egress.Dial) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	config.Dial = dial
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	told := target.Query()
	told.Set("timeout", timeout.String())
	target.RawQuery = told.Encode()
	return &server{url: target.String(), http: c, timeout: timeout, backoff: firstPause}, nil
}

// ask posts a review and decodes the answer into it. It calls tried after each attempt.
func (s *server) ask(ctx context.Context, review runtime.Object, tried func(err error, took time.Duration)) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pause := s.backoff
	for attempt := 1; ; attempt++ {
		began := time.Now()
		again, err := s.once(ctx, body, review)
		tried(err, time.Since(began))
		if err == nil || !again || attempt == attempts {
			return err
		}
		select {
		case <-time.After(pause):
			pause = pause * 3 / 2
		case <-ctx.Done():
			return err
		}
	}
}

func (s *server) once(ctx context.Context, body []byte, answer runtime.Object) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	resp, err := s.http.Do(req)
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return true, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, refusal(resp.StatusCode, data)
	}
	return false, decode(data, answer)
}

// refusal returns the error of an unsuccessful answer, in the wording of Kubernetes' clients.
func refusal(code int, data []byte) error {
	var status metav1.Status
	if decode(data, &status) == nil && status.Status == metav1.StatusFailure {
		return apierrors.FromObject(&status)
	}
	return apierrors.NewGenericServerResponse(code, http.MethodPost, schema.GroupResource{}, "", strings.TrimSpace(string(data)), 0, true)
}

// reviews is the scheme of the kinds that servers answer with.
var reviews = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		authorizationv1.AddToScheme, authorizationv1beta1.AddToScheme, authenticationv1.AddToScheme, imagepolicyv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // registers Status
	return scheme
})

// answers decodes answers of servers.
var answers = sync.OnceValue(func() runtime.Decoder { return serializer.NewCodecFactory(reviews()).UniversalDeserializer() })

// decode decodes an answer. If it names a kind, it must be the kind of into.
func decode(data []byte, into runtime.Object) error {
	if err := bounds.Aliases(data); err != nil { // the answer may be YAML
		return err
	}
	kinds, _, err := reviews().ObjectKinds(into)
	if err != nil {
		return err
	}
	obj, _, err := answers().Decode(data, &kinds[0], into)
	if err == nil && obj != into {
		err = fmt.Errorf("converting (%s) to (%s): unknown conversion", reflect.TypeOf(obj).Elem(), reflect.TypeOf(into).Elem())
	}
	return err
}
