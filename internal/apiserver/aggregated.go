package apiserver

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/aggregation"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// ownClient is the server's client for its own needs.
func (s *Server) ownClient() client.Interface {
	return s.Client(auth.Component(auth.UserAPIServer, auth.GroupMasters))
}

func localServices(on *api.Switches) (objs []runtime.Object) {
	for _, service := range aggregation.Local(on) {
		objs = append(objs, service)
	}
	return objs
}

// aggregate keeps the routes to extension servers up to date until ctx ends.
func (s *Server) aggregate(ctx context.Context) {
	if err := s.remotes.Run(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("API services are not served", "err", err)
	}
}

// Trust is the configuration with which extension servers authenticate forwarded requests. They
// read it from the ConfigMap kube-system/extension-apiserver-authentication.
type Trust struct {
	// ClientCA returns the current authorities of client certificates in PEM; a nil ClientCA means
	// that there are none.
	ClientCA func() []byte
	// FrontProxyCA returns the authorities of the certificate that this server shows to extension
	// servers, in PEM. The certificate has one of FrontProxyNames.
	FrontProxyCA    func() []byte
	FrontProxyNames []string
	// Headers are the headers with the user's identity; see auth.FrontProxyHeaders.
	Headers auth.FrontProxyHeaders
	// Removed reports whether an authority is not trusted any more; nil means none.
	Removed func(*x509.Certificate) bool
}

const trustMapName = "extension-apiserver-authentication"

// mergeTrust merges this server's data with those of other servers. It adds certificates, so that
// servers with several authorities agree, and drops expired and removed ones.
func mergeTrust(have, want *corev1.ConfigMap, now int64, removed func(*x509.Certificate) bool) {
	if have.Data == nil {
		have.Data = map[string]string{}
	}
	for key, value := range want.Data {
		switch key {
		case "client-ca-file", "requestheader-client-ca-file":
			have.Data[key] = mergeCertificates(have.Data[key], value, now, removed)
		default:
			have.Data[key] = mergeList(have.Data[key], value)
		}
	}
}

func mergeCertificates(have, want string, now int64, removed func(*x509.Certificate) bool) string {
	wanted, err := cert.ParseCertsPEM([]byte(want))
	if err != nil {
		return want
	}
	present, err := cert.ParseCertsPEM([]byte(have))
	if err != nil {
		return want
	}
	var merged []*x509.Certificate
	add := func(c *x509.Certificate) {
		if !slices.ContainsFunc(merged, c.Equal) {
			merged = append(merged, c)
		}
	}
	for _, c := range present {
		if c.NotAfter.Unix() > now && (removed == nil || !removed(c)) || slices.ContainsFunc(wanted, c.Equal) {
			add(c)
		}
	}
	for _, c := range wanted {
		add(c)
	}
	if slices.EqualFunc(merged, present, (*x509.Certificate).Equal) {
		return have
	}
	out, err := cert.EncodeCertificates(merged...)
	if err != nil {
		return want
	}
	return string(out)
}

// mergeList returns the union of two lists in JSON.
func mergeList(have, want string) string {
	var list, wanted []string
	if json.Unmarshal([]byte(want), &wanted) != nil || json.Unmarshal([]byte(have), &list) != nil {
		return want
	}
	for _, item := range wanted {
		if !slices.ContainsFunc(list, func(other string) bool { return strings.EqualFold(item, other) }) {
			list = append(list, item)
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return want
	}
	return string(text)
}
