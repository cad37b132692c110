package upgrade

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/version"
)

// Paths of the API server. Access requires authorization for the path. The admin has it for all,
// nodes for NodePath, WatchPath and ProgramPath.
const (
	// Path answers a GET with a Status, and takes an Order by POST.
	Path = "/knarr/v1/upgrade"
	// NodePath takes a node's Report by POST and answers with a NodeAnswer.
	NodePath = Path + "/node"
	// WatchPath answers a node's GET with a stream: its present NodeAnswer, and each one after it.
	// Each is a line of JSON. The server ends the stream after some minutes.
	WatchPath = NodePath + "/watch"
	// ProgramPath serves the bytes of the Order's program. The parameter sha256 names it.
	ProgramPath = Path + "/program"
)

// OrderKey is the Order's key in the store.
const OrderKey = "/knarr/upgrade/order"

// Limits of sizes in bytes: of a program, of a request, and of the text of an error.
const (
	MaxProgram = 512 << 20
	MaxRequest = 64 << 10
	maxText    = 1 << 10
)

// Program identifies a program file.
type Program struct {
	Build  version.Build `json:"build"`
	SHA256 string        `json:"sha256"`
	Size   int64         `json:"size"`
}

// Validate returns an error that names the wrong field.
func (p Program) Validate() error {
	if sum, err := hex.DecodeString(p.SHA256); err != nil || len(sum) != 32 {
		return fmt.Errorf("sha256: %q is not usable: 64 hexadecimal digits", short(p.SHA256))
	}
	if p.Size <= 0 || p.Size > MaxProgram {
		return fmt.Errorf("size: %d is not usable: 1 to %d bytes", p.Size, MaxProgram)
	}
	if _, _, err := release(p.Build); err != nil {
		return err
	}
	if p.Build.Platform == "" {
		return fmt.Errorf("build.platform: it is missing")
	}
	return nil
}

// Kinds of machines. A server's machine may also run a node, in the same process.
const (
	Server = "server"
	Node   = "node"
)

// Turn asks one machine to replace its program now.
type Turn struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Nonce is different in each turn.
	Nonce string `json:"nonce"`
}

// Order is what the cluster shall run.
type Order struct {
	Program Program   `json:"program"`
	Started time.Time `json:"started"`
	// Source is the server whose data folder has the program first.
	Source string `json:"source"`
	Turns  []Turn `json:"turns,omitempty"`
	// Generation is the one that was read; a write of an older one is refused. 0 means that there
	// is no Order yet. In the store it is 0.
	Generation int64 `json:"generation,omitempty"`
	// Finished ends the upgrade: the Order and the copies of the program are removed.
	Finished bool `json:"finished,omitempty"`
}

// Validate returns an error that names the wrong field.
func (o Order) Validate() error {
	if err := o.Program.Validate(); err != nil {
		return fmt.Errorf("program.%w", err)
	}
	if len(o.Turns) > 1000 {
		return fmt.Errorf("turns: %d are too many: at most 1000", len(o.Turns))
	}
	for i, t := range o.Turns {
		switch {
		case t.Kind != Server && t.Kind != Node:
			return fmt.Errorf("turns[%d].kind: %q is not usable: server or node", i, short(t.Kind))
		case t.Name == "" || len(t.Name) > 253:
			return fmt.Errorf("turns[%d].name: %q is not usable: the name of a machine", i, short(t.Name))
		case t.Nonce == "" || len(t.Nonce) > 64:
			return fmt.Errorf("turns[%d].nonce: %q is not usable: 1 to 64 characters", i, short(t.Nonce))
		}
	}
	return nil
}

// turn returns the machine's turn, or nil.
func (o *Order) turn(kind, name string) *Turn {
	if o == nil {
		return nil
	}
	for i := range o.Turns {
		if t := &o.Turns[i]; t.Kind == kind && t.Name == name {
			return t
		}
	}
	return nil
}

// Phase is how far a machine is with its turn.
type Phase string

// Phases. A machine that has restarted with the new program is Idle again.
const (
	Idle       Phase = ""
	Fetching   Phase = "fetching"
	Verifying  Phase = "verifying"
	Restarting Phase = "restarting"
	Failed     Phase = "failed"
)

// Report is what a machine tells about itself.
type Report struct {
	Kind  string        `json:"kind"`
	Name  string        `json:"name"`
	Build version.Build `json:"build"`
	// Node means that a server's process runs the node of the same name, too.
	Node bool `json:"node,omitempty"`
	// Program is the path of the installed program, and Free the free bytes where it lies or in
	// the data folder, whichever is less. Free is rounded, so that it rarely changes.
	Program string `json:"program,omitempty"`
	Free    int64  `json:"free,omitempty"`
	// Problem is why the machine cannot replace its program; "" means that it can.
	Problem string `json:"problem,omitempty"`
	// Has is the hash of the program that the machine has fetched.
	Has string `json:"has,omitempty"`
	// Nonce, Phase and Error are of the last turn.
	Nonce string `json:"nonce,omitempty"`
	Phase Phase  `json:"phase,omitempty"`
	Error string `json:"error,omitempty"`
}

// ParseReport parses a node's report. The sender is untrusted.
func ParseReport(data []byte) (Report, error) {
	var r Report
	if len(data) > MaxRequest {
		return r, fmt.Errorf("the report is larger than %d bytes", MaxRequest)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("the report is not usable: %w", err)
	}
	switch r.Phase {
	case Idle, Fetching, Verifying, Restarting, Failed:
	default:
		return r, fmt.Errorf("phase: %q is not usable: fetching, verifying, restarting or failed", short(string(r.Phase)))
	}
	b := &r.Build
	for field, value := range map[string]*string{
		"program": &r.Program, "problem": &r.Problem, "has": &r.Has, "nonce": &r.Nonce, "error": &r.Error, "build.knarr": &b.Knarr,
		"build.kubernetes": &b.Kubernetes, "build.commit": &b.Commit, "build.date": &b.Date, "build.tree": &b.Tree, "build.go": &b.Go, "build.platform": &b.Platform,
	} {
		if len(*value) > maxText {
			return r, fmt.Errorf("%s: it has %d bytes, more than %d", field, len(*value), maxText)
		}
		*value = printable(*value)
	}
	return r, nil
}

// NodeAnswer tells a node what to do.
type NodeAnswer struct {
	// Active means that an upgrade is under way. A node that cannot watch asks more often then.
	Active bool `json:"active,omitempty"`
	// Order is set if the node has its turn. It has no other turns.
	Order *Order `json:"order,omitempty"`
}

// Status is the state of an upgrade and of the machines.
type Status struct {
	Order   *Order        `json:"order,omitempty"`
	Reports []Report      `json:"reports"`
	Servers []ServerState `json:"servers"`
	// Deprecated are requested APIs with the release that removes them.
	Deprecated []DeprecatedAPI `json:"deprecated,omitempty"`
}

// ServerState is a server as the answering one sees it.
type ServerState struct {
	member.Member
	// Ready is "ok", or why the server does not pass /readyz. A server passes only once it has
	// caught up with the store.
	Ready string `json:"ready"`
}

// DeprecatedAPI is an API that clients have requested from a server since its start.
type DeprecatedAPI struct {
	Server   string `json:"server"`
	Resource string `json:"resource"` // such as flowschemas.v1beta3.flowcontrol.apiserver.k8s.io
	// Removed is the release without the API, such as 1.32.
	Removed string `json:"removed"`
}

// short limits text of unknown length for a message.
func short(text string) string { return text[:min(len(text), 80)] }

// printable replaces control characters, which could mislead a terminal.
func printable(text string) string {
	out := []rune(text)
	for i, r := range out {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			out[i] = ' '
		}
	}
	return string(out)
}
