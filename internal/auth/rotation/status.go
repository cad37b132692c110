package rotation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/auth/pki"
)

// Status is the state of one authority, for the administrator.
type Status struct {
	Name       string    `json:"name"`
	Phase      Phase     `json:"phase,omitempty"`
	Generation int64     `json:"generation"`
	Changed    time.Time `json:"changed,omitzero"`
	// Lagging lists the parties that have not applied the step yet, or cannot tell.
	Lagging []Lag `json:"lagging,omitempty"`
}

// Lag is a party that has not applied the present step.
type Lag struct {
	Party  string `json:"party"` // such as "server a" or "node b"
	Reason string `json:"reason"`
	// Unknown means that the party does not tell its state. Waiting does not help.
	Unknown bool `json:"unknown,omitempty"`
}

// Node is what a node tells about its certificates.
type Node struct {
	Name string
	// Tells is false for a node agent that tells nothing, such as upstream's kubelet.
	Tells bool
	// Authorities is the hash of the bundle that the node trusts.
	Authorities string
	// Client and Serving are the hashes of the issuers' keys; "" if there is no certificate.
	Client, Serving string
}

// Statuses returns the state of all authorities that have a Record.
func (m *Manager) Statuses(ctx context.Context, nodes []Node) ([]Status, error) {
	records, err := m.Records(ctx)
	if err != nil {
		return nil, err
	}
	reports, err := m.Reports(ctx)
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, name := range sortedNames(records) {
		r := records[name]
		out = append(out, Status{Name: name, Phase: r.Phase, Generation: r.Generation, Changed: r.Changed, Lagging: Lagging(r, reports, nodes)})
	}
	return out, nil
}

// Lagging returns the parties that keep a Record's next step from being taken.
func Lagging(r *Record, servers []Report, nodes []Node) []Lag {
	var out []Lag
	here := map[string]bool{}
	for _, s := range servers {
		here[s.Server] = true
		if reason := serverLag(r, s); reason != "" {
			out = append(out, Lag{Party: "server " + s.Server, Reason: reason})
		} else if loaded, ok := s.Loaded[r.Name]; ok && r.Phase == Signing && !slices.Contains(loaded, r.New) {
			out = append(out, Lag{Party: "server " + s.Server, Unknown: true, Reason: "it must be started again before the last step: its store's connections know only the old CA"})
		}
	}
	if r.Name != Kubernetes {
		return out
	}
	bundle, signer := BundleHash(r.Bundle), r.Signer()
	for _, n := range nodes {
		l := Lag{Party: "node " + n.Name}
		switch {
		case here[n.Name] && !n.Tells: // it shares the server's process and keys
			continue
		case !n.Tells:
			l.Unknown, l.Reason = true, "its agent does not tell its certificates; see that it trusts both CAs and has a certificate of the new one"
		case n.Authorities != bundle:
			l.Reason = "it has not learned the CAs yet"
		case r.Phase == Signing && n.Client != signer:
			l.Reason = "its client certificate is of another CA"
		case r.Phase == Signing && n.Serving != signer:
			l.Reason = "its serving certificate is of another CA"
		default:
			continue
		}
		out = append(out, l)
	}
	return out
}

func serverLag(r *Record, s Report) string {
	switch {
	case s.Generations[r.Name] < r.Generation && s.Error != "":
		return s.Error
	case s.Generations[r.Name] < r.Generation:
		return fmt.Sprintf("it has not applied the step; its last sign is of %s", s.Seen.UTC().Format(time.RFC3339))
	case r.Phase != Signing || r.Name == ServiceAccounts || r.Name == Encryption:
		return ""
	}
	for _, e := range s.Certificates {
		if (e.Kind == pki.KindLeaf || e.Kind == pki.KindKubeconfig) && e.Issuer == r.Old {
			return fmt.Sprintf("certificate %s is of the old CA", e.Name)
		}
	}
	return ""
}
