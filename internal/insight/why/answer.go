package why

import (
	"cmp"
	"slices"
	"strings"
)

// Ref names an object. Namespace is empty for kinds without one. The Kind of a custom resource is
// KIND.GROUP, such as Widget.example.com.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the name as kubectl takes it, such as pod/web-0, without the namespace.
func (r Ref) String() string { return strings.ToLower(r.Kind) + "/" + r.Name }

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Fact is one piece of evidence.
type Fact struct {
	Text   string `json:"text"`
	Object *Ref   `json:"object,omitempty"` // the object that shows it, if it is not the subject
}

// Link refers to an object that may be the reason of a finding. Only restricts it to findings of
// these causes; empty allows all.
type Link struct {
	Object Ref      `json:"object"`
	Only   []string `json:"-"`
}

// Finding is one thing that is wrong with an object.
type Finding struct {
	Cause    string `json:"cause"` // a stable name, such as pod-cpu
	Subject  Ref    `json:"subject"`
	Problem  string `json:"problem"` // one sentence
	Evidence []Fact `json:"evidence,omitempty"`
	// Remedy is one sentence or a command.
	Remedy string `json:"remedy,omitempty"`
	// Root means that no other finding explains this one.
	Root bool `json:"root"`
	// Because are the findings that explain this one.
	Because []*Finding `json:"because,omitempty"`
	// Nodes has the scheduler's verdict on each node, for a pod that cannot be scheduled.
	Nodes []NodeVerdict `json:"nodes,omitempty"`
	links []Link
	// onlyLinked means that there is no finding if no link leads to one.
	onlyLinked bool
}

// Root is a root cause and the subjects that it affects, in order.
type Root struct {
	*Finding
	Affects []Ref `json:"affects"`
}

// Answer is the answer to a question.
type Answer struct {
	// Subject is the object of the question; nil for a question about a namespace or a cluster.
	Subject *Ref `json:"subject,omitempty"`
	// Scope is the namespace of a question without a subject; empty for the whole cluster.
	Scope string `json:"scope,omitempty"`
	// Roots are the root causes; the first affects most objects.
	Roots []Root `json:"rootCauses"`
	// Findings are the findings on the subjects, each with its chain of causes.
	Findings []*Finding `json:"findings"`
	// Unread lists the lookups that the caller may not do, or that failed. Findings that need them
	// are missing.
	Unread []string `json:"unread,omitempty"`
	// Looked is the number of objects that the rules examined.
	Looked int `json:"looked"`
	// denial marks the answer to a question about a request or a connection.
	denial bool
}

// roots collects the root causes of findings.
func roots(findings []*Finding) []Root {
	type key struct {
		subject Ref
		cause   string
		problem string
	}
	found := map[key]*Root{}
	var order []key
	var walk func(f *Finding, subject Ref)
	walk = func(f *Finding, subject Ref) {
		if !f.Root {
			for _, b := range f.Because {
				walk(b, subject)
			}
			return
		}
		k := key{f.Subject, f.Cause, f.Problem}
		r := found[k]
		if r == nil {
			r = &Root{Finding: f}
			found[k] = r
			order = append(order, k)
		}
		if !slices.Contains(r.Affects, subject) {
			r.Affects = append(r.Affects, subject)
		}
	}
	for _, f := range findings {
		walk(f, f.Subject)
	}
	out := make([]Root, 0, len(order))
	for _, k := range order {
		slices.SortFunc(found[k].Affects, compareRefs)
		out = append(out, *found[k])
	}
	slices.SortStableFunc(out, func(a, b Root) int {
		return cmp.Or(cmp.Compare(len(b.Affects), len(a.Affects)), compareRefs(a.Subject, b.Subject))
	})
	return out
}
