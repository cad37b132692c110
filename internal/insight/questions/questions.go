package questions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/insight/relations"
	"github.com/knarr-project/knarr/internal/insight/why"
)

// Answerer answers a question with a client that has the caller's rights.
type Answerer = func(ctx context.Context, c *rest.Config, q url.Values) (media string, body []byte, err error)

// All returns the Answerers by the names of their questions:
//
//	why?group=&resource=&namespace=&name=  why an object is not well
//	why?namespace=                         what is not well in a namespace, or in the cluster
//	map?namespace=&output=                 components and relations, as json, svg, mermaid or text
func All() map[string]Answerer {
	return map[string]Answerer{"why": explain, "map": draw}
}

const mediaJSON = "application/json"

func explain(ctx context.Context, c *rest.Config, q url.Values) (media string, body []byte, err error) {
	reader, err := why.NewReader(c)
	if err != nil {
		return "", nil, err
	}
	question, err := whyQuestion(ctx, reader, q)
	if err != nil {
		return "", nil, err
	}
	answer, err := why.Explain(ctx, reader, question, time.Now())
	if errors.Is(err, why.ErrNoSubject) {
		err = apierrors.NewNotFound(schema.GroupResource{Group: q.Get("group"), Resource: q.Get("resource")}, q.Get("name"))
	}
	if err != nil {
		return "", nil, err
	}
	body, err = json.Marshal(answer)
	return mediaJSON, body, err
}

// whyQuestion reads the object or the namespace of a question.
func whyQuestion(ctx context.Context, reader *why.ClusterReader, q url.Values) (why.Question, error) {
	resource, name, namespace := q.Get("resource"), q.Get("name"), q.Get("namespace")
	if resource == "" && name == "" {
		return why.Question{Namespace: namespace}, nil
	}
	if resource == "" || name == "" {
		return why.Question{}, apierrors.NewBadRequest("resource and name must be given together, or neither")
	}
	gr := schema.GroupResource{Group: q.Get("group"), Resource: resource}
	kind, ok := api.ByResource(gr)
	if !ok {
		ref, err := reader.Resolve(ctx, gr.String(), namespace, name)
		if err != nil {
			return why.Question{}, apierrors.NewBadRequest(fmt.Sprintf("resource: %q: %v", gr, err))
		}
		return why.Question{Subject: &ref}, nil
	}
	switch {
	case !kind.Namespaced:
		namespace = ""
	case namespace == "":
		return why.Question{}, apierrors.NewBadRequest("namespace must be given for " + resource)
	}
	return why.Question{Subject: &why.Ref{Kind: kind.Kind.Kind, Namespace: namespace, Name: name}}, nil
}

// drawings are the formats of a map.
var drawings = map[string]struct {
	media string
	draw  func(*bytes.Buffer, *relations.Graph) error
}{
	"json":    {mediaJSON, func(to *bytes.Buffer, g *relations.Graph) error { return json.NewEncoder(to).Encode(g) }},
	"svg":     {"image/svg+xml", func(to *bytes.Buffer, g *relations.Graph) error { return g.SVG(to) }},
	"mermaid": {"text/plain; charset=utf-8", func(to *bytes.Buffer, g *relations.Graph) error { return g.Mermaid(to) }},
	"text":    {"text/plain; charset=utf-8", func(to *bytes.Buffer, g *relations.Graph) error { return g.Text(to, false) }},
}

func draw(ctx context.Context, c *rest.Config, q url.Values) (media string, body []byte, err error) {
	drawing, ok := drawings[cmp.Or(q.Get("output"), "json")]
	if !ok {
		return "", nil, apierrors.NewBadRequest(fmt.Sprintf("output: %q is not one of json, svg, mermaid and text", q.Get("output")))
	}
	g, err := relations.Of(ctx, c, q.Get("namespace"))
	if err != nil {
		return "", nil, err
	}
	var to bytes.Buffer
	err = drawing.draw(&to, g)
	return drawing.media, to.Bytes(), err
}
