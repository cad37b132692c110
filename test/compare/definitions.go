package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitions measures the cost of a CustomResourceDefinition. It creates 1,000, each in its own
// group with one object, reads the OpenAPI documents, and measures two minutes after their last
// use. It also measures the time from the answer to a create until the kind is served.
func definitions(ctx context.Context, o *options, c *clients, f figures, cluster *cluster) error {
	if err := cluster.restartServer(ctx); err != nil {
		return err
	}
	if err := c.readOpenAPI(ctx); err != nil {
		return err
	}
	_, before := settled(ctx, cluster.control)
	n := int(1000 * o.scale)
	served := make([]time.Duration, n)
	kept, err := o.keepProfiles(ctx, c, "definitions")
	if err != nil {
		return err
	}
	spent := stopwatch(cluster.control)
	_, err = c.each(ctx, n, 8, func(w *wire, i int) (err error) {
		served[i], err = w.define(ctx, i)
		return err
	})
	if err != nil {
		return err
	}
	serving, _ := spent()
	if err := kept(); err != nil {
		return err
	}
	if err := c.readOpenAPI(ctx); err != nil {
		return err
	}
	_, inUse := settled(ctx, cluster.control)
	_ = pause(ctx, 2*time.Minute)
	_, with := settled(ctx, cluster.control)
	slices.Sort(served)
	f["crd-memory"] = figure{value: (with - before) / float64(n), note: fmt.Sprintf("%d definitions of %.0f kB; %.2f MB while they are used", n, float64(len(definition(0)))/1000, (inUse-before)/float64(n))}
	f["crd-served"] = figure{value: served[n-1].Seconds() * 1000, note: fmt.Sprintf("median %s; CPU: server %.1f ms for a definition and its object", short(served[n/2]), serving.Seconds()*1000/float64(n))}
	return nil
}

// define creates a definition and returns the time until an object of its kind could be created.
func (w *wire) define(ctx context.Context, i int) (time.Duration, error) {
	if _, err := w.do("POST", definitionsPath, jsonType, jsonType, definition(i)); err != nil {
		return 0, err
	}
	made := time.Now()
	objects := fmt.Sprintf("/apis/g%d.compare.example/v1/namespaces/%s/things%d", i, space, i)
	for {
		_, err := w.do("POST", objects, jsonType, jsonType, thing(i))
		if err == nil {
			return time.Since(made), nil
		}
		if time.Since(made) > time.Minute {
			return 0, fmt.Errorf("things%d: not served after a minute: %w", i, err)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func thing(i int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"g%d.compare.example/v1","kind":"Thing%d","metadata":{"name":"one"},"spec":{"part0":{"field0":"a","count":1}}}`, i, i)
}

// definition returns a kind with two hundred described fields, defaults and rules, the size of what
// operators install.
func definition(i int) []byte {
	parts := map[string]any{}
	for part := range 12 {
		fields := map[string]any{"count": map[string]any{"type": "integer", "default": 1, "minimum": 0, "description": "How many there should be of this, unless the part says otherwise."}}
		for field := range 15 {
			fields[fmt.Sprintf("field%d", field)] = map[string]any{"type": "string", "maxLength": 253, "description": fmt.Sprintf("Field %d of part %d says something that the operator of kind %d wants to know about it.", field, part, i)}
		}
		parts[fmt.Sprintf("part%d", part)] = map[string]any{
			"type": "object", "description": "A part of the thing, with settings of its own.", "properties": fields,
			"x-kubernetes-validations": []any{map[string]any{"rule": "!has(self.field0) || self.field0 != 'never'", "message": "never is not allowed"}},
		}
	}
	schema := map[string]any{"type": "object", "properties": map[string]any{
		"spec":   map[string]any{"type": "object", "properties": parts},
		"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}}
	group, plural := fmt.Sprintf("g%d.compare.example", i), fmt.Sprintf("things%d", i)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metav1.ObjectMeta{Name: plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "singular": fmt.Sprintf("thing%d", i), "kind": fmt.Sprintf("Thing%d", i)},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema}, "subresources": map[string]any{"status": map[string]any{}}}},
		},
	})
	if err != nil {
		panic(err)
	}
	return body
}

// readOpenAPI reads all documents, as a client that needs everything.
func (c *clients) readOpenAPI(ctx context.Context) error {
	if _, err := c.set.Discovery().OpenAPISchema(); err != nil {
		return err
	}
	paths, err := c.set.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if _, err := path.Schema("application/json"); err != nil {
			return err
		}
	}
	return ctx.Err()
}
