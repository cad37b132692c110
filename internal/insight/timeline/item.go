package timeline

import "time"

// Item is one change of one object.
type Item struct {
	Time     time.Time `json:"time"`
	Revision int64     `json:"revision"`
	// Effect is created, changed or removed.
	Effect      string `json:"effect"`
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Kind        string `json:"kind,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name"`
	UID         string `json:"uid,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	// Actor is the authenticated user, if the causal log has the write. Manager is the field
	// manager.
	Actor   string `json:"actor,omitempty"`
	Manager string `json:"manager,omitempty"`
	// Changes are the fields that differ, without noise, at most MaxChanges. More counts the rest.
	Changes []Change `json:"changes,omitempty"`
	More    int      `json:"more,omitempty"`
	// Unknown says why there are no changes although there may be some.
	Unknown string `json:"unknown,omitempty"`
	Event   *Event `json:"event,omitempty"`
}

// Change is one field that differs. From is absent for a new field, To for a removed one.
type Change struct {
	Path string `json:"path"`
	From any    `json:"from,omitempty"`
	To   any    `json:"to,omitempty"`
	// Hidden says that the values are not shown, as those of Secrets.
	Hidden bool `json:"hidden,omitempty"`
}

// Event is what an Event says.
type Event struct {
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Regarding Reference `json:"regarding"`
	Count     int64     `json:"count"`
	Component string    `json:"component,omitempty"`
}

// Reference names an object.
type Reference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Gap is a time of which a server does not know all changes.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Answer is the answer of an API server, newest Item first.
type Answer struct {
	Items []Item `json:"items"`
	// Reaches is the oldest time of which the server knows changes.
	Reaches time.Time `json:"reaches"`
	Gaps    []Gap     `json:"gaps"`
	// Hidden counts the changes of objects that the user may not get.
	Hidden int `json:"hidden"`
	// Missing are the servers that did not say who made their writes, with the reasons.
	Missing map[string]string `json:"missing,omitempty"`
	// Continue asks for the next page; "" if there is none.
	Continue string `json:"continue"`
}

// Difference is the net difference of one object between two moments.
type Difference struct {
	// Effect is created, changed or removed.
	Effect    string `json:"effect"`
	Group     string `json:"group"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Before and After are the object at both moments, without noise; absent if it did not exist.
	Before map[string]any `json:"before,omitempty"`
	After  map[string]any `json:"after,omitempty"`
	// Hidden are fields that changed and whose values are not shown.
	Hidden []string `json:"hidden,omitempty"`
	// Unknown says why the states are missing.
	Unknown string `json:"unknown,omitempty"`
}

// NetAnswer is the answer of an API server about the difference between two moments.
type NetAnswer struct {
	Items  []Difference `json:"items"`
	From   time.Time    `json:"from"`
	To     time.Time    `json:"to"`
	Gaps   []Gap        `json:"gaps"`
	Hidden int          `json:"hidden"`
	// Truncated says that there are more Items.
	Truncated bool `json:"truncated"`
}
