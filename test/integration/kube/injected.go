package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
)

// inProcess is the token of a client for which a test's own authenticator needs no token.
const inProcess = "in-process"

// Injected holds what a test put into the server itself: an authenticator, an authorizer, the
// longest lifetime of tokens. knarr reaches them by webhooks.
type Injected struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	nameless      bool          // the test's client has no token
	longest       time.Duration // the longest lifetime of a new token; 0 means unlimited
	server        *httptest.Server
}

// NewInjected runs a test's change of the configuration, in which only these settings count. ok is
// false if it changes something else.
func NewInjected(modify func(*controlplane.Config)) (r *Injected, ok bool) {
	defer func() {
		if recover() != nil { // it reads something that is missing here, such as the store
			ok = false
		}
	}()
	config := &controlplane.Config{}
	generic := &genericapiserver.Config{LoopbackClientConfig: &rest.Config{BearerToken: inProcess}}
	none := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil })
	generic.Authentication.Authenticator = none
	silent := &silentAuthorizer{}
	generic.Authorization.Authorizer = silent
	config.ControlPlane.Generic = generic
	modify(config)
	if generic.RequestInfoResolver != nil || generic.AdmissionControl != nil || generic.OpenAPIConfig != nil || config.ControlPlane.StorageFactory != nil {
		return nil, false
	}
	r = &Injected{authenticator: generic.Authentication.Authenticator, nameless: generic.LoopbackClientConfig.BearerToken == "", longest: config.ControlPlane.Extra.ServiceAccountMaxExpiration}
	if generic.Authorization.Authorizer != authorizer.Authorizer(silent) {
		r.authorizer = generic.Authorization.Authorizer
	}
	return r, true
}

// Serve answers knarr's webhook requests, and sets the options to its address.
func (r *Injected) Serve(opts *options.ServerRunOptions, dir string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/authenticate", func(w http.ResponseWriter, req *http.Request) { review(w, req, r.authenticate) })
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, req *http.Request) { review(w, req, r.authorize) })
	r.server = httptest.NewTLSServer(mux)
	var err error
	if opts.Authentication.WebHook.ConfigFile, err = r.kubeconfig(dir, "authenticate"); err != nil {
		return err
	}
	if r.longest != 0 {
		opts.Authentication.ServiceAccounts.MaxExpiration = r.longest
	}
	opts.Authentication.WebHook.Version, opts.Authentication.WebHook.CacheTTL = "v1", 0
	if r.authorizer == nil {
		return nil
	}
	opts.Authorization.Modes = append([]string{"Webhook"}, opts.Authorization.Modes...)
	opts.Authorization.WebhookVersion, opts.Authorization.WebhookCacheAuthorizedTTL, opts.Authorization.WebhookCacheUnauthorizedTTL = "v1", 0, 0
	opts.Authorization.WebhookConfigFile, err = r.kubeconfig(dir, "authorize")
	return err
}

// Close stops the server.
func (r *Injected) Close() { r.server.Close() }

// Client gives a client a token that the test's authenticator accepts.
func (r *Injected) Client(config *rest.Config) {
	if r.nameless {
		config.BearerToken = inProcess
	}
}

func (r *Injected) kubeconfig(dir, path string) (string, error) {
	config := clientcmdapi.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: r.server.URL + "/" + path, CertificateAuthorityData: authority}
	config.AuthInfos["knarr"] = &clientcmdapi.AuthInfo{}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "knarr"}
	config.CurrentContext = "test"
	file := filepath.Join(dir, path+".kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// review decodes a review, calls answer, and sends the review back.
func review[T any](w http.ResponseWriter, req *http.Request, answer func(context.Context, *T)) {
	var object T
	if err := json.NewDecoder(req.Body).Decode(&object); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(req.Context(), &object)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&object)
}

func (r *Injected) authenticate(ctx context.Context, review *authenticationv1.TokenReview) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		review.Status.Error = err.Error()
		return
	}
	if review.Spec.Token != inProcess {
		req.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	}
	response, ok, err := r.authenticator.AuthenticateRequest(req)
	if err != nil {
		review.Status.Error = err.Error()
	}
	if err != nil || !ok {
		return
	}
	review.Status.Authenticated = true
	review.Status.User = authenticationv1.UserInfo{Username: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups()}
	for key, values := range response.User.GetExtra() {
		if review.Status.User.Extra == nil {
			review.Status.User.Extra = map[string]authenticationv1.ExtraValue{}
		}
		review.Status.User.Extra[key] = values
	}
}

func (r *Injected) authorize(ctx context.Context, review *authorizationv1.SubjectAccessReview) {
	who := &user.DefaultInfo{Name: review.Spec.User, UID: review.Spec.UID, Groups: review.Spec.Groups, Extra: map[string][]string{}}
	for key, values := range review.Spec.Extra {
		who.Extra[key] = values
	}
	what := authorizer.AttributesRecord{User: who}
	if a := review.Spec.ResourceAttributes; a != nil {
		what.ResourceRequest, what.Verb, what.Namespace, what.Name = true, a.Verb, a.Namespace, a.Name
		what.APIGroup, what.APIVersion, what.Resource, what.Subresource = a.Group, a.Version, a.Resource, a.Subresource
	}
	if a := review.Spec.NonResourceAttributes; a != nil {
		what.Verb, what.Path = a.Verb, a.Path
	}
	decision, reason, err := r.authorizer.Authorize(ctx, what)
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
}

// silentAuthorizer stands for knarr's own authorizers, which knarr asks itself.
type silentAuthorizer struct{ _ int }

func (*silentAuthorizer) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}
