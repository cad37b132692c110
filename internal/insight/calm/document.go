package calm

import "encoding/json"

// Schema is the schema that exported documents name.
const Schema = "https://calm.finos.org/release/1.1/meta/calm.json"

// networkControl names the requirement behind the control "network" of a system.
const networkControl = "urn:knarr.io:architecture:v1alpha1:System.spec.network"

// Document is an architecture.
type Document struct {
	Schema        string         `json:"$schema,omitempty"`
	Nodes         []Node         `json:"nodes"`
	Relationships []Relationship `json:"relationships"`
}

// Node is a part of an architecture.
type Node struct {
	UniqueID    string             `json:"unique-id"`
	NodeType    string             `json:"node-type"`
	Name        string             `json:"name"`
	Description string             `json:"description"`
	Interfaces  []Interface        `json:"interfaces,omitempty"`
	Controls    map[string]Control `json:"controls,omitempty"`
	// Metadata is an object, or a list of objects.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Interface is a place where others connect to a node. Documents write the port directly, or in
// config.
type Interface struct {
	UniqueID string           `json:"unique-id"`
	Name     string           `json:"name,omitempty"`
	Host     string           `json:"host,omitempty"`
	Port     json.RawMessage  `json:"port,omitempty"`
	Protocol string           `json:"protocol,omitempty"`
	Config   *interfaceConfig `json:"config,omitempty"`
}

type interfaceConfig struct {
	Host     string          `json:"host,omitempty"`
	Port     json.RawMessage `json:"port,omitempty"`
	Protocol string          `json:"protocol,omitempty"`
}

// Control is a promise about a node, with the requirements that it meets.
type Control struct {
	Description  string        `json:"description"`
	Requirements []Requirement `json:"requirements"`
}

// Requirement names a requirement, and says how it is met.
type Requirement struct {
	RequirementURL string            `json:"requirement-url"`
	ConfigURL      string            `json:"config-url,omitempty"`
	Config         map[string]string `json:"config,omitempty"`
}

// Relationship has exactly one of its types.
type Relationship struct {
	UniqueID    string           `json:"unique-id"`
	Description string           `json:"description,omitempty"`
	Type        RelationshipType `json:"relationship-type"`
	Protocol    string           `json:"protocol,omitempty"`
	Metadata    json.RawMessage  `json:"metadata,omitempty"`
}

// RelationshipType is a type with the nodes that take part.
type RelationshipType struct {
	Interacts  *Interacts      `json:"interacts,omitempty"`
	Connects   *Connects       `json:"connects,omitempty"`
	DeployedIn *Contains       `json:"deployed-in,omitempty"`
	ComposedOf *Contains       `json:"composed-of,omitempty"`
	Options    json.RawMessage `json:"options,omitempty"`
}

// Interacts is an actor that uses nodes.
type Interacts struct {
	Actor string   `json:"actor"`
	Nodes []string `json:"nodes"`
}

// Connects is a node that uses another one.
type Connects struct {
	Source      NodeInterface `json:"source"`
	Destination NodeInterface `json:"destination"`
}

// NodeInterface is a node, and the interfaces of it that are meant. None means all.
type NodeInterface struct {
	Node       string   `json:"node"`
	Interfaces []string `json:"interfaces,omitempty"`
}

// Contains is a node and its parts.
type Contains struct {
	Container string   `json:"container"`
	Nodes     []string `json:"nodes"`
}

// nodeMetadata is what an export tells of a node that CALM has no place for.
type nodeMetadata struct {
	Kubernetes *declaration `json:"kubernetes,omitempty"`
}

// relationMetadata is what an export tells of a relationship.
type relationMetadata struct {
	Sources     []string `json:"sources"`
	Differences []string `json:"differences,omitempty"`
	Optional    bool     `json:"optional,omitempty"`
	Evidence    []string `json:"evidence,omitempty"`
}
