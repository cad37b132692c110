package calm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/knarr-project/knarr/internal/architecture"
)

// Limits of a document.
const (
	maxBytes         = 4 << 20
	maxNodes         = 5000
	maxRelationships = 20000
)

// Imported is what a document declares.
type Imported struct {
	Components []*architecture.Component
	Systems    []*architecture.System
	// Notes say what was guessed, and what has no place in Kubernetes.
	Notes []string
}

// Import reads a document. Components that do not name their namespace are put into the given one.
func Import(from io.Reader, namespace string) (*Imported, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("the document has more than %d bytes, which is the most that is allowed", maxBytes)
	}
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, describe(err, data)
	}
	i := &importer{d: &d, namespace: namespace, nodes: map[string]*part{}, names: map[string]string{}}
	for _, step := range []func() error{i.check, i.parts, i.relationships} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return i.result(), nil
}

// describe names the place of an error in JSON.
func describe(err error, data []byte) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return fmt.Errorf("line %d: %w: a CALM document is JSON", line, err)
	case errors.As(err, &kind):
		line := 1 + bytes.Count(data[:min(int(kind.Offset), len(data))], []byte("\n"))
		return fmt.Errorf("line %d: %s: found a %s where the schema of CALM has another type (%s)", line, cmp.Or(kind.Field, "the document"), kind.Value, kind.Type)
	}
	return err
}

// part is a node with what it becomes.
type part struct {
	node      *Node
	at        string // such as nodes[3]
	about     *declaration
	container bool
	component *architecture.Component
	system    *architecture.System
	// offers are the names of the component's offers by the unique-id of the interface.
	offers map[string]string
}

type importer struct {
	d         *Document
	namespace string
	nodes     map[string]*part
	order     []*part
	names     map[string]string // what uses the name of an object: kind/namespace/name to unique-id
	notes     []string
}

func (i *importer) note(format string, args ...any) {
	i.notes = append(i.notes, fmt.Sprintf(format, args...))
}

// check compares the document with the limits, and its references with its nodes.
func (i *importer) check() error {
	switch {
	case len(i.d.Nodes) == 0:
		return errors.New("nodes: the document has none; a CALM architecture has at least one")
	case len(i.d.Nodes) > maxNodes:
		return fmt.Errorf("nodes: %d are too many: at most %d are allowed", len(i.d.Nodes), maxNodes)
	case len(i.d.Relationships) > maxRelationships:
		return fmt.Errorf("relationships: %d are too many: at most %d are allowed", len(i.d.Relationships), maxRelationships)
	}
	for n := range i.d.Nodes {
		node := &i.d.Nodes[n]
		at := fmt.Sprintf("nodes[%d]", n)
		for _, field := range [][2]string{{"unique-id", node.UniqueID}, {"node-type", node.NodeType}, {"name", node.Name}} {
			if field[1] == "" {
				return fmt.Errorf("%s.%s: the field is missing or empty; the schema of CALM requires it", at, field[0])
			}
		}
		if old := i.nodes[node.UniqueID]; old != nil {
			return fmt.Errorf("%s.unique-id: %q is that of %s too; each must be different", at, node.UniqueID, old.at)
		}
		p := &part{node: node, at: at, about: i.about(node), offers: map[string]string{}}
		i.nodes[node.UniqueID] = p
		i.order = append(i.order, p)
	}
	for n := range i.d.Relationships {
		if err := i.checkRelationship(fmt.Sprintf("relationships[%d]", n), &i.d.Relationships[n]); err != nil {
			return err
		}
	}
	return nil
}

func (i *importer) about(node *Node) *declaration {
	var m nodeMetadata
	// The metadata may be a list, or of another program.
	if json.Unmarshal(node.Metadata, &m) != nil || m.Kubernetes == nil {
		return &declaration{}
	}
	return m.Kubernetes
}

func (i *importer) checkRelationship(at string, r *Relationship) error {
	refer := func(field, id string) error {
		if i.nodes[id] == nil {
			return fmt.Errorf("%s.relationship-type.%s: no node has the unique-id %q", at, field, id)
		}
		return nil
	}
	all := func(field, first string, nodes []string) error {
		if len(nodes) == 0 {
			return fmt.Errorf("%s.relationship-type.%s.nodes: the list is missing or empty; at least one node is required", at, field)
		}
		for n, id := range nodes {
			if err := refer(fmt.Sprintf("%s.nodes[%d]", field, n), id); err != nil {
				return err
			}
		}
		return refer(field+"."+map[bool]string{true: "actor", false: "container"}[field == "interacts"], first)
	}
	types := 0
	var errs []error
	if t := r.Type.Interacts; t != nil {
		types++
		errs = append(errs, all("interacts", t.Actor, t.Nodes))
	}
	if t := r.Type.Connects; t != nil {
		types++
		errs = append(errs, refer("connects.source.node", t.Source.Node), refer("connects.destination.node", t.Destination.Node))
	}
	for field, t := range map[string]*Contains{"composed-of": r.Type.ComposedOf, "deployed-in": r.Type.DeployedIn} {
		if t != nil {
			types++
			errs = append(errs, all(field, t.Container, t.Nodes))
			if p := i.nodes[t.Container]; p != nil {
				p.container = true
			}
		}
	}
	if r.Type.Options != nil {
		types++
		i.note("%s: the options of a pattern are left out: an architecture has decided", at)
	}
	if types != 1 {
		return fmt.Errorf("%s.relationship-type: %d types are given; exactly one of interacts, connects, deployed-in, composed-of or options is allowed", at, types)
	}
	return errors.Join(errs...)
}

// parts makes Components and Systems of the nodes.
func (i *importer) parts() error {
	for _, p := range i.order {
		kind := p.about.Kind
		if kind == "" {
			switch {
			case p.container || p.node.NodeType == "system":
				kind = "System"
			case p.node.NodeType == "actor", p.node.NodeType == "ecosystem", p.node.NodeType == "network", p.node.NodeType == "data-asset":
				continue // a party beyond the cluster, or no pods
			default:
				kind = "Component"
			}
		}
		name, err := objectName(p.at, cmp.Or(p.about.Name, p.node.UniqueID))
		if err != nil {
			return err
		}
		switch kind {
		case "System":
			p.system = &architecture.System{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if p.about.System != nil {
				p.system.Spec = *p.about.System
			}
			i.controls(p)
		case "Component":
			if err := i.component(p, name); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s.metadata.kubernetes.kind: found %q; allowed are Component and System", p.at, kind)
		}
		key := kind + "/" + p.namespace() + "/" + name
		if other, taken := i.names[key]; taken {
			return fmt.Errorf("%s.unique-id: %q gives the %s the name %s, as %q does", p.at, p.node.UniqueID, kind, name, other)
		}
		i.names[key] = p.node.UniqueID
	}
	return nil
}

func (p *part) namespace() string {
	if p.component != nil {
		return p.component.Namespace
	}
	return ""
}

// objectName makes a name for Kubernetes of an identifier.
func objectName(at, id string) (string, error) {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, id), "-")
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-")
	}
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return "", fmt.Errorf("%s.unique-id: %q cannot be the name of an object: it needs letters or digits", at, id)
	}
	return name, nil
}

func (i *importer) component(p *part, name string) error {
	namespace := cmp.Or(p.about.Namespace, i.namespace)
	if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
		return fmt.Errorf("%s.metadata.kubernetes.namespace: %q is no name of a namespace: %s", p.at, namespace, strings.Join(errs, "; "))
	}
	p.component = &architecture.Component{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	spec := &p.component.Spec
	if p.about.Component != nil {
		*spec = *p.about.Component
		// The relationships tell these. A document may have been edited.
		spec.Offers, spec.Requires, spec.RequiresOutside, spec.Exposed = nil, nil, nil, nil
	}
	if len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		spec.Selector.MatchLabels = map[string]string{"app.kubernetes.io/name": name}
		i.note("%s: the labels of the pods of %q are not in the document: the selector is app.kubernetes.io/name=%s; correct it", p.at, p.node.UniqueID, name)
	}
	for n := range p.node.Interfaces {
		if err := i.offer(p, fmt.Sprintf("%s.interfaces[%d]", p.at, n), &p.node.Interfaces[n]); err != nil {
			return err
		}
	}
	i.controls(p)
	return nil
}

// offer makes an offer of an interface. One without a port becomes a note.
func (i *importer) offer(p *part, at string, in *Interface) error {
	if in.UniqueID == "" {
		return fmt.Errorf("%s.unique-id: the field is missing or empty; the schema of CALM requires it", at)
	}
	raw, protocol := in.Port, in.Protocol
	if in.Config != nil {
		if len(raw) == 0 {
			raw = in.Config.Port
		}
		protocol = cmp.Or(protocol, in.Config.Protocol)
	}
	if len(raw) == 0 || string(raw) == "null" {
		i.note("%s: the interface %q has no port, and is left out", at, in.UniqueID)
		return nil
	}
	port, err := parsePort(raw)
	if err != nil {
		return fmt.Errorf("%s.port: %w", at, err)
	}
	name, err := objectName(at, cmp.Or(in.Name, in.UniqueID))
	if err != nil {
		return err
	}
	o := architecture.Offer{Name: name, Port: port, Protocol: transport(protocol)}
	if p.about.Component != nil {
		for _, known := range p.about.Component.Offers {
			if known.Name == name {
				o.Service = known.Service
			}
		}
	}
	if slices.ContainsFunc(p.component.Spec.Offers, func(other architecture.Offer) bool { return other.Name == name }) {
		return fmt.Errorf("%s: a second interface gives an offer the name %q", at, name)
	}
	p.component.Spec.Offers = append(p.component.Spec.Offers, o)
	p.offers[in.UniqueID] = name
	return nil
}

func parsePort(raw json.RawMessage) (intstr.IntOrString, error) {
	var port intstr.IntOrString
	if err := json.Unmarshal(raw, &port); err != nil {
		return port, fmt.Errorf("found %.40s; a number from 1 to 65535 or the name of a port is allowed", raw)
	}
	if port.Type == intstr.String {
		if number := intstr.Parse(port.StrVal); number.Type == intstr.Int {
			port = number
		} else if errs := validation.IsValidPortName(port.StrVal); len(errs) > 0 {
			return port, fmt.Errorf("%.40q is no name of a port: %s", port.StrVal, strings.Join(errs, "; "))
		}
	}
	if port.Type == intstr.Int && (port.IntVal < 1 || port.IntVal > 65535) {
		return port, fmt.Errorf("found %d; a number from 1 to 65535 or the name of a port is allowed", port.IntVal)
	}
	return port, nil
}

// transport returns the protocol below, such as TCP for HTTPS.
func transport(protocol string) string {
	switch strings.ToUpper(protocol) {
	case "UDP", "SCTP":
		return strings.ToUpper(protocol)
	}
	return "TCP"
}
