package admission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Again is what a mutator of several parts (webhooks, policies) remembers between the rounds of one write: which of its parts see the
// object a second time. Those are the ones of reinvocationPolicy IfNeeded that saw it before something else changed it (API
// reference). Parts have names.
type Again struct {
	invoked map[string]bool // of IfNeeded, since the last change
	due     map[string]bool
	left    runtime.Object // the object as the mutator left it in the first round
}

// Again is the mutator's own, made on first use.
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

// Enter begins a round: what others have changed since the round before makes parts due.
func (g *Again) Enter(a *Attributes) {
	if a.Rounds.Number > 0 && !equality.Semantic.DeepEqual(g.left, a.Object) {
		g.moved()
	}
}

// Leave ends a round.
func (g *Again) Leave(a *Attributes) {
	if a.Rounds.Number == 0 && a.Object != nil && len(g.due)+len(g.invoked) > 0 {
		g.left = a.Object.DeepCopyObject()
	}
}

// Skips tells whether a part has nothing to do in this round.
func (g *Again) Skips(a *Attributes, part string) bool { return a.Rounds.Number > 0 && !g.due[part] }

// Changed says that the object is another one now: everybody is to have a look at it.
func (g *Again) Changed(a *Attributes) {
	g.moved()
	a.Rounds.repeat = true
}

// Invoked says that a part of reinvocationPolicy IfNeeded has seen the object.
func (g *Again) Invoked(part string) { g.invoked[part] = true }

// moved makes all parts due that have seen the object before this change.
func (g *Again) moved() {
	for part := range g.invoked {
		g.due[part] = true
	}
	clear(g.invoked)
}
