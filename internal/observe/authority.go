package observe

import (
	"context"
	"crypto/x509"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// cacheDuration is how long the published authority is cached.
const cacheDuration = time.Minute

// Authority authenticates client certificates by the CA that the API server publishes for its
// extensions (the ConfigMap extension-apiserver-authentication). It reads the ConfigMap when a
// client presents a certificate. It is safe for concurrent use.
type Authority struct {
	Client client.Interface
	Now    func() time.Time

	mu           sync.Mutex // guards what follows
	looked       time.Time
	published    string
	certificates *auth.Certificates
}

// Authenticate implements auth.Authenticator. There is no user if the client presents no
// certificate or the CA is unknown.
func (a *Authority) Authenticate(r *http.Request) (auth.User, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return auth.User{}, false, nil
	}
	known, err := a.current(r.Context())
	if err != nil || known == nil {
		return auth.User{}, false, err
	}
	return known.Authenticate(r)
}

func (a *Authority) current(ctx context.Context) (*auth.Certificates, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.Now(); a.looked.IsZero() || now.Sub(a.looked) > cacheDuration {
		m, err := client.Get[*corev1.ConfigMap](ctx, a.Client, metav1.NamespaceSystem, "extension-apiserver-authentication")
		if err != nil {
			return a.certificates, err
		}
		a.looked = now
		if pem := m.Data["client-ca-file"]; pem != a.published {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM([]byte(pem))
			a.published, a.certificates = pem, auth.NewCertificates(pool, a.Now)
		}
	}
	return a.certificates, nil
}
