package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/clusterinfo"
)

func (s *Server) certificatePaths(paths map[string]http.Handler) {
	paths[rotation.CertificatesPath] = answer(http.MethodGet, func(r *http.Request, _ *struct{}) (any, error) { return s.certificates(r.Context()) })
	paths[rotation.RotatePath] = answer(http.MethodPost, func(_ *http.Request, in *rotation.RotateRequest) (any, error) {
		if err := s.keys.Known(in.Names...); err != nil {
			return nil, refused{err}
		}
		if err := s.keys.Replace(in.Names...); err != nil {
			return nil, err
		}
		return s.inventory(), nil
	})
	paths[rotation.RewritePath] = answer(http.MethodPost, func(r *http.Request, in *rotation.RewriteRequest) (any, error) { return s.rewrite(r.Context(), in) })
	paths[rotation.StepPath] = answer(http.MethodPost, func(r *http.Request, in *rotation.StepRequest) (any, error) { return s.step(r.Context(), in) })
}

// refused is an error that the client has caused or must resolve.
type refused struct{ error }

// answer serves JSON. The body of a POST is JSON too.
func answer[In any](method string, do func(*http.Request, *In) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		in := new(In)
		if method == http.MethodPost {
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(in); err != nil {
				http.Error(w, "the body is not usable: "+err.Error(), http.StatusBadRequest)
				return
			}
		}
		out, err := do(r, in)
		if err != nil {
			code := http.StatusInternalServerError
			if errors.As(err, &refused{}) {
				code = http.StatusConflict
			}
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client has gone
	})
}

// certificates collects the answer of rotation.CertificatesPath.
func (s *Server) certificates(ctx context.Context) (*rotation.Certificates, error) {
	var out rotation.Certificates
	var err error
	if out.Servers, err = s.rotation.Reports(ctx); err != nil {
		return nil, err
	}
	// This server's own state may be newer than its Report.
	own := func(r rotation.Report) bool { return r.Server == s.cfg.NodeName }
	if at := slices.IndexFunc(out.Servers, own); at >= 0 {
		out.Servers[at].Certificates = s.inventory()
	} else {
		out.Servers = append(out.Servers, rotation.Report{Server: s.cfg.NodeName, Seen: s.keyClock().Now().UTC(), Certificates: s.inventory()})
	}
	if out.Nodes, err = s.nodeReports(ctx); err != nil {
		return nil, err
	}
	if out.Tokens, err = s.tokenReports(ctx); err != nil {
		return nil, err
	}
	if out.EncryptionKeys, err = encryptionKeys(s.cfg.APIServer.EncryptionConfig); err != nil {
		return nil, err
	}
	out.Rotations, err = s.statuses(ctx, out.Nodes)
	return &out, err
}

// statuses returns the state of all authorities, with the tokens that a rotation would end.
func (s *Server) statuses(ctx context.Context, nodes []rotation.NodeReport) ([]rotation.Status, error) {
	all, err := s.rotation.Statuses(ctx, told(nodes))
	if err != nil {
		return nil, err
	}
	for i := range all {
		if r := &all[i]; r.Name == rotation.ServiceAccounts && r.Phase == rotation.Signing {
			if until := r.Changed.Add(max(longestToken, s.cfg.APIServer.ServiceAccounts.MaxExpiration.Duration)); s.clock.Now().Before(until) {
				r.Lagging = append(r.Lagging, rotation.Lag{Party: "tokens of the old key", Unknown: true,
					Reason: "some may be valid until " + until.UTC().Format(time.DateOnly) + "; nodes give pods new ones within an hour, but a program may have kept its first one"})
			}
		}
	}
	return all, nil
}

// longestToken is the lifetime of pods' tokens for the API server: upstream and knarr extend it to
// a year for programs that read their token only once.
const longestToken = 365 * 24 * time.Hour

func (s *Server) nodeReports(ctx context.Context) ([]rotation.NodeReport, error) {
	list, err := s.own().List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, ok := list.(*corev1.NodeList)
	if !ok {
		return nil, fmt.Errorf("the API answered with a %T where nodes were expected", list)
	}
	var out []rotation.NodeReport
	for i := range nodes.Items {
		r := rotation.NodeReport{Node: nodes.Items[i].Name}
		r.NodeCertificates, r.Tells = clusterinfo.CertificatesOf(&nodes.Items[i])
		out = append(out, r)
	}
	return out, nil
}

func told(nodes []rotation.NodeReport) []rotation.Node {
	var out []rotation.Node
	for _, n := range nodes {
		out = append(out, rotation.Node{Name: n.Node, Tells: n.Tells, Authorities: n.Authorities, Client: n.Client.Issuer, Serving: n.Serving.Issuer})
	}
	return out
}

// tokenReports lists the bootstrap tokens.
func (s *Server) tokenReports(ctx context.Context) ([]rotation.TokenReport, error) {
	list, err := s.own().List(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), metav1.NamespaceSystem,
		metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return nil, err
	}
	secrets, ok := list.(*corev1.SecretList)
	if !ok {
		return nil, fmt.Errorf("the API answered with a %T where Secrets were expected", list)
	}
	var out []rotation.TokenReport
	for _, secret := range secrets.Items {
		t := rotation.TokenReport{ID: string(secret.Data["token-id"])}
		if text := string(secret.Data["expiration"]); text != "" {
			// The authenticator ignores a token with another form.
			t.Expires, _ = time.Parse(time.RFC3339, text)
		}
		out = append(out, t)
	}
	return out, nil
}

// encryptionKeys lists the keys of a configuration of encryption, without their secrets.
func encryptionKeys(path string) ([]rotation.EncryptionKey, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var config apiserverconfig.EncryptionConfiguration
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []rotation.EncryptionKey
	for _, resource := range config.Resources {
		writes := true
		add := func(provider string, names ...string) {
			for _, name := range names {
				out = append(out, rotation.EncryptionKey{Resources: resource.Resources, Provider: provider, Name: name, Writes: writes})
				writes = false
			}
		}
		for _, p := range resource.Providers {
			switch {
			case p.AESGCM != nil:
				add("aesgcm", keyNames(p.AESGCM.Keys)...)
			case p.AESCBC != nil:
				add("aescbc", keyNames(p.AESCBC.Keys)...)
			case p.Secretbox != nil:
				add("secretbox", keyNames(p.Secretbox.Keys)...)
			case p.KMS != nil:
				add("kms", p.KMS.Name)
			case p.Identity != nil:
				add("identity", "(not encrypted)")
			}
		}
	}
	return out, nil
}

func keyNames(keys []apiserverconfig.Key) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

// step takes a step of a rotation, unless a party would be cut off.
func (s *Server) step(ctx context.Context, in *rotation.StepRequest) (*rotation.Status, error) {
	if err := s.rotatable(in.Name); err != nil {
		return nil, refused{err}
	}
	nodes, err := s.nodeReports(ctx)
	if err != nil {
		return nil, err
	}
	if in.Step == rotation.Switch || in.Step == rotation.Finish {
		status, err := s.statusOf(ctx, in.Name, nodes)
		if err != nil {
			return nil, err
		}
		if len(status.Lagging) > 0 && !in.Force {
			return nil, refused{fmt.Errorf("%s: step %q would cut off: %s", in.Name, in.Step, parties(status.Lagging))}
		}
	}
	if in.Name == rotation.Encryption && in.Step == rotation.Finish {
		if status, err := s.statusOf(ctx, in.Name, nodes); err != nil || status.Phase == rotation.Signing {
			if err := errors.Join(err, s.finishEncryption(ctx, in.Force)); err != nil {
				return nil, err
			}
		}
	}
	if _, err := s.rotation.Advance(ctx, in.Name, in.Step); err != nil {
		return nil, refused{err}
	}
	return s.statusOf(ctx, in.Name, nodes)
}

func parties(lagging []rotation.Lag) string {
	var out []string
	for _, l := range lagging {
		out = append(out, l.Party+" ("+l.Reason+")")
	}
	return strings.Join(out, "; ")
}

// statusOf returns the state of one authority; the zero Status has never been rotated.
func (s *Server) statusOf(ctx context.Context, name string, nodes []rotation.NodeReport) (*rotation.Status, error) {
	all, err := s.statuses(ctx, nodes)
	if err != nil {
		return nil, err
	}
	for _, status := range all {
		if status.Name == name {
			return &status, nil
		}
	}
	return &rotation.Status{Name: name}, nil
}

// rotatable returns an error if the flags, not DIR/pki, decide about a key.
func (s *Server) rotatable(name string) error {
	c := &s.cfg.APIServer.ServiceAccounts
	switch {
	case name != rotation.ServiceAccounts:
		return nil
	case c.SigningEndpoint != "":
		return errors.New("service-accounts: --service-account-signing-endpoint signs the tokens; rotate the keys there")
	case c.SigningKeyFile != "":
		return errors.New("service-accounts: --service-account-signing-key-file names the key; put another key there, and the old one into --service-account-key-file")
	}
	return nil
}

// followKeys applies the cluster's decisions about keys until ctx ends.
func (s *Server) followKeys(ctx context.Context) {
	if err := s.api.Started(ctx); err != nil {
		return
	}
	s.rotation.Run(ctx)
}
