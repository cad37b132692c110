package rotation

import (
	"time"

	"github.com/knarr-project/knarr/internal/clusterinfo"
)

// Paths of the API server for `knarr certificates`. Access requires authorization for the path (the
// admin has it).
const (
	CertificatesPath = "/knarr/v1/certificates"
	// RotatePath renews certificates of the server that answers.
	RotatePath = CertificatesPath + "/rotate"
	// RewritePath encrypts objects in the store again, in phase Signing of Encryption.
	RewritePath = CertificatesPath + "/rewrite"
	// StepPath takes a step of a
	StepPath = CertificatesPath + "/step"
)

// Certificates is the answer of CertificatesPath: all that expires or is rotated, as far as the API
// tells.
type Certificates struct {
	Servers        []Report        `json:"servers"`
	Nodes          []NodeReport    `json:"nodes,omitempty"`
	Tokens         []TokenReport   `json:"tokens,omitempty"`
	EncryptionKeys []EncryptionKey `json:"encryptionKeys,omitempty"`
	Rotations      []Status        `json:"rotations,omitempty"`
}

// NodeReport is what a node tells in its annotation. Tells is false for a node that tells nothing.
type NodeReport struct {
	Node  string `json:"node"`
	Tells bool   `json:"tells"`
	clusterinfo.NodeCertificates
}

// TokenReport is a bootstrap token. Expires is zero if it never does.
type TokenReport struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires,omitzero"`
}

// EncryptionKey is a key in the file of --encryption-provider-config. It has no date.
type EncryptionKey struct {
	Resources []string `json:"resources"`
	Provider  string   `json:"provider"`
	Name      string   `json:"name"`
	// Writes means that new values are encrypted with it.
	Writes bool `json:"writes"`
}

// StepRequest is the body of StepPath. Force takes the step although parties lag.
type StepRequest struct {
	Name  string `json:"name"`
	Step  Step   `json:"step"`
	Force bool   `json:"force,omitempty"`
}

// RotateRequest is the body of RotatePath. Without names, all certificates are renewed.
type RotateRequest struct {
	Names []string `json:"names,omitempty"`
}

// RewriteRequest is the body of RewritePath. From is the Next of the last answer, or "".
type RewriteRequest struct {
	From  string `json:"from,omitempty"`
	Force bool   `json:"force,omitempty"`
}

// RewriteAnswer is the progress of some seconds of work.
type RewriteAnswer struct {
	// Seen and Changed are the numbers of objects that were read, and encrypted again.
	Seen    int `json:"seen"`
	Changed int `json:"changed"`
	// Next is the place to go on from; "" means that all objects are done.
	Next string `json:"next,omitempty"`
	// Broken are keys in the store that no key of the configuration decrypts.
	Broken []string `json:"broken,omitempty"`
}
