package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

const (
	defaultExpiration = 3600    // seconds, if the request has none
	minExpiration     = 600     // seconds
	maxExpiration     = 1 << 32 // seconds
	extendedLifetime  = 365 * 24 * time.Hour
	// podExpiration is the expiry that only the admission plugin requests, for a pod's token
	// volume: 3600 seconds and 7. Such tokens live for a year, for workloads that read their token
	// only once; WarnAfter is the requested expiry.
	podExpiration = 3607
)

// Prepare validates a TokenRequest for a service account and fills its defaults.
func (s *Service) Prepare(request *authenticationv1.TokenRequest) error {
	spec := field.NewPath("spec")
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = slices.Clone(s.Audiences)
	}
	if request.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultExpiration)
		request.Spec.ExpirationSeconds = &seconds
	}
	var errs field.ErrorList
	if seconds := *request.Spec.ExpirationSeconds; seconds < minExpiration {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
	} else if seconds > maxExpiration {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(errs) > 0 {
		return api.Invalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, "", errs)
	}
	return nil
}

// Issue answers a create of serviceaccounts/NAME/token. It validates the request, reads the account
// and the object to bind to, and sets the status. It changes request.
func (s *Service) Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if s.signer.Load() == nil && s.External == nil {
		return nil, apierrors.NewInternalError(errors.New("this API server has no key to sign service account tokens with"))
	}
	account, err := client.Get[*corev1.ServiceAccount](ctx, s.Client, namespace, name)
	if err != nil {
		return nil, err
	}
	if request.Name != "" && request.Name != name {
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), request.Name, "must match the service account name if specified")}
		return nil, api.Invalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, name, errs)
	}
	if request.Namespace != "" && request.Namespace != namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if request.UID != "" && request.UID != account.UID {
		gr := schema.GroupResource{Group: authenticationv1.GroupName, Resource: "TokenRequest"}
		return nil, apierrors.NewConflict(gr, name, fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.UID))
	}
	if err := s.Prepare(request); err != nil {
		return nil, err
	}
	bound, err := s.bind(ctx, account, request.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	requested := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	if s.MaxExpiration > 0 && requested > s.MaxExpiration {
		requested = s.MaxExpiration
		request.Spec.ExpirationSeconds = new(int64(requested / time.Second))
	}
	lifetime := requested
	if s.extends(request, bound) {
		lifetime = extendedLifetime
		if s.External != nil {
			lifetime = min(lifetime, s.External.MaxExpiration)
		}
		bound.WarnAfter = now.Add(requested).Unix()
	}
	text, err := s.sign(ctx, &claims{
		Issuer: s.Issuer, Subject: auth.ServiceAccountName(namespace, name), Audience: request.Spec.Audiences, ID: s.NewID(),
		IssuedAt: now.Unix(), NotBefore: now.Unix(), Expires: now.Add(lifetime).Unix(), Private: bound,
	})
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to generate token: %w", err))
	}
	request.Name, request.Namespace, request.UID, request.CreationTimestamp = name, namespace, account.UID, metav1.NewTime(now)
	request.Status = authenticationv1.TokenRequestStatus{Token: text, ExpirationTimestamp: metav1.NewTime(now.Add(requested))}
	return request, nil
}

// extends reports whether the token outlives the requested expiry.
func (s *Service) extends(request *authenticationv1.TokenRequest, bound *private) bool {
	if s.KeepExpiration || bound.Pod == nil || *request.Spec.ExpirationSeconds != podExpiration {
		return false
	}
	return !slices.ContainsFunc(request.Spec.Audiences, func(a string) bool { return !slices.Contains(s.Audiences, a) })
}

// bind reads the object that the token will be bound to.
func (s *Service) bind(ctx context.Context, account *corev1.ServiceAccount, bound *authenticationv1.BoundObjectReference) (*private, error) {
	p := &private{Namespace: account.Namespace, ServiceAccount: ref{Name: account.Name, UID: string(account.UID)}}
	if bound == nil {
		return p, nil
	}
	gvk := schema.FromAPIVersionAndKind(bound.APIVersion, bound.Kind)
	if bound.Name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	var uid types.UID
	switch gvk.GroupKind() { // in any version
	case schema.GroupKind{Kind: "Pod"}:
		pod, err := client.Get[*corev1.Pod](ctx, s.Client, account.Namespace, bound.Name)
		if err != nil {
			return nil, err
		}
		if pod.Spec.ServiceAccountName != account.Name {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
		}
		uid, p.Pod = pod.UID, &ref{Name: pod.Name, UID: string(pod.UID)}
		if pod.Spec.NodeName != "" {
			p.Node = &ref{Name: pod.Spec.NodeName}
			switch node, err := client.Get[*corev1.Node](ctx, s.Client, "", pod.Spec.NodeName); {
			case err == nil:
				p.Node.UID = string(node.UID)
			case !apierrors.IsNotFound(err):
				return nil, err
			}
		}
	case schema.GroupKind{Kind: "Node"}:
		node, err := client.Get[*corev1.Node](ctx, s.Client, "", bound.Name)
		if err != nil {
			return nil, err
		}
		uid, p.Node = node.UID, &ref{Name: node.Name, UID: string(node.UID)}
	case schema.GroupKind{Kind: "Secret"}:
		secret, err := client.Get[*corev1.Secret](ctx, s.Client, account.Namespace, bound.Name)
		if err != nil {
			return nil, err
		}
		uid, p.Secret = secret.UID, &ref{Name: secret.Name, UID: string(secret.UID)}
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk))
	}
	if bound.UID != "" && bound.UID != uid {
		gr := schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}
		return nil, apierrors.NewConflict(gr, bound.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", bound.UID))
	}
	return p, nil
}
