package scheduler

import (
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// Shrink removes parts of a failing case as long as it still fails.
func Shrink(c *Case, fails func(*Case) bool) *Case {
	tries := 0
	for {
		before := c
		for depth := 1; depth <= deepest; depth++ {
			for number := 0; ; {
				smaller, more := without(c, depth, number)
				if !more {
					break
				}
				if tries++; tries > mostTries {
					return c
				}
				if smaller != nil && fails(smaller) {
					c = smaller // the next part has this number now
				} else {
					number++
				}
			}
		}
		if c == before {
			return c
		}
	}
}

// mostTries bounds the work for one case.
const mostTries = 800

// deepest is the depth of the deepest field that is removed, such as the value of an expression of
// an affinity term.
const deepest = 14

// kept are the fields without which an object is no valid one.
var kept = map[string]bool{
	"pod": true, "metadata": true, "spec": true, "status": true, "name": true, "namespace": true, "uid": true, "containers": true, "image": true, "resources": true, "schedulerName": true,
	"nodeName": true, "allocatable": true, "pods": true, "key": true, "operator": true, "values": true, "effect": true, "weight": true, "preference": true, "podAffinityTerm": true, "topologyKey": true,
	"maxSkew": true, "whenUnsatisfiable": true, "containerPort": true, "protocol": true, "provisioner": true, "volumeBindingMode": true, "accessModes": true,
	"capacity": true, "storage": true, "requests": true, "storageClassName": true, "volumeMode": true, "claimName": true, "phase": true, "drivers": true, "nodeID": true,
	"driver": true, "volumeHandle": true, "attacher": true, "source": true, "persistentVolumeName": true, "startTime": true, "kind": true, "apiVersion": true, "nodeSelectorTerms": true, "controller": true,
	"claimRef": true, "type": true, "reason": true, "volumeName": true,
}

// without returns a copy of the case without the part that has this number at this depth; nil if
// the rest is no case. more reports whether there is such a part.
func without(c *Case, depth, number int) (smaller *Case, more bool) {
	var tree any
	text := c.YAML()
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		return nil, false
	}
	if _, more = cut(tree, depth, &number); !more {
		return nil, false
	}
	rest, err := yaml.Marshal(tree)
	if err != nil || string(rest) == text {
		return nil, true
	}
	smaller = &Case{}
	if err := yaml.Unmarshal(rest, smaller); err != nil || smaller.Pod == nil {
		return nil, true
	}
	return smaller, true
}

// cut removes the part with number *left at this depth below v. It returns the new v.
func cut(v any, depth int, left *int) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if depth > 1 {
				if below, done := cut(v[key], depth-1, left); done {
					v[key] = below
					return v, true
				}
				continue
			}
			if kept[key] {
				continue
			}
			if *left == 0 {
				delete(v, key)
				return v, true
			}
			*left--
		}
	case []any:
		for i := range v {
			if depth > 1 {
				if below, done := cut(v[i], depth-1, left); done {
					v[i] = below
					return v, true
				}
				continue
			}
			if *left == 0 {
				return slices.Delete(v, i, i+1), true
			}
			*left--
		}
	}
	return v, false
}
