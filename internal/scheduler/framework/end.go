package framework

// Ender is a value in a State that holds resources of the cycle.
type Ender interface {
	// End frees the resources. Calls after the first one do nothing.
	End()
}

// End ends a cycle: the scheduler calls it when the pod was refused, bound, or failed to be bound.
func (s State) End() {
	for _, value := range s {
		if e, ok := value.(Ender); ok {
			e.End()
		}
	}
}
