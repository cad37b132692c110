package admission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Again tracks which parts (webhooks, policies) of one mutator run in the second round of a write.
// A part runs again if its reinvocationPolicy is IfNeeded and another plugin or part changed the
// object after it (API reference). Parts are identified by name.
type Again struct {
	invoked map[string]bool // parts with IfNeeded that ran since the last change
	due     map[string]bool
	left    runtime.Object // the object after the mutator's first round
}

// Again returns the mutator's own state; the first call makes it.
func (r *Rounds) Again(plugin string) *Again {
	if again, ok := r.again[plugin]; ok {
		return again
	}
	if r.again == nil {
		r.again = map[string]*Again{}
	}
	again := &Again{invoked: map[string]bool{}, due: map[string]bool{}}
	r.again[plugin] = again
	return again
}

// Enter begins a round. A change by other plugins since the last round makes parts due.
func (g *Again) Enter(a *Attributes) {
	if a.Rounds.Number > 0 && !equality.Semantic.DeepEqual(g.left, a.Object) {
		g.makeDue()
	}
}

// Leave ends a round.
func (g *Again) Leave(a *Attributes) {
	if a.Rounds.Number == 0 && a.Object != nil && len(g.due)+len(g.invoked) > 0 {
		g.left = a.Object.DeepCopyObject()
	}
}

// Skips reports whether a part does not run in this round.
func (g *Again) Skips(a *Attributes, part string) bool { return a.Rounds.Number > 0 && !g.due[part] }

// Changed records a change of the object and requests a second round.
func (g *Again) Changed(a *Attributes) {
	g.makeDue()
	a.Rounds.repeat = true
}

// Invoked records that a part with reinvocationPolicy IfNeeded has seen the object.
func (g *Again) Invoked(part string) { g.invoked[part] = true }

// makeDue makes all parts due that saw the object before this change.
func (g *Again) makeDue() {
	for part := range g.invoked {
		g.due[part] = true
	}
	clear(g.invoked)
}
