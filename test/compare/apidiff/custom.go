package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// definitions defines the custom resources in the corpus.
//
//go:embed custom/definitions.yaml
var definitions string

// define creates the definitions and waits until both servers serve and publish them.
func define(ctx context.Context, sides pair) error {
	for doc := range strings.SplitSeq(definitions, "\n---\n") {
		body, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return err
		}
		for _, s := range sides {
			if err := must(s.send(ctx, post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(body)))); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	for _, s := range sides {
		for _, path := range []string{"/apis/diff.example/v1/widgets", "/apis/diff.example/v1beta1/widgets", "/apis/diff.example/v1/gadgets", "/apis/diff.example/v1/plains", "/openapi/v3/apis/diff.example/v1", "/openapi/v3/apis/diff.example/v1beta1"} {
			if err := until(ctx, s.name+" "+path, func() bool {
				a, err := s.send(ctx, request{method: http.MethodGet, path: path})
				return err == nil && a.code == http.StatusOK
			}); err != nil {
				return err
			}
		}
	}
	select { // discovery and the OpenAPI documents follow a moment later
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
	return ctx.Err()
}
