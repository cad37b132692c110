package why

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/api"
)

const (
	readTimeout = 15 * time.Second // of one request
	atOnce      = 8                // requests in flight
	pageSize    = 1000             // objects of one request
	maxPages    = 100
	maxEvents   = 500 // of one object
	logLines    = 10
)

// ClusterReader reads from any Kubernetes API server with the rights of its configuration.
type ClusterReader struct {
	client    rest.Interface
	discovery discovery.DiscoveryInterface
	kinds     func() ([]customKind, error) // read once
}

// NewReader returns the Reader of a cluster.
func NewReader(config *rest.Config) (*ClusterReader, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = api.Codecs.WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	config.QPS = -1 // the number of requests in flight is limited, and a question ends
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &ClusterReader{client: client, discovery: discoverer}
	c.kinds = sync.OnceValues(c.discover)
	return c, nil
}

func (c *ClusterReader) read(ctx context.Context, needs []need) []*reply {
	out := make([]*reply, len(needs))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, n := range needs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			out[i] = c.one(ctx, n)
		})
	}
	group.Wait()
	return out
}

func (c *ClusterReader) one(ctx context.Context, n need) *reply {
	var r *reply
	var err error
	switch {
	case n.what == "kinds":
		var kinds []customKind
		kinds, err = c.kinds()
		r = &reply{kinds: kinds}
	case n.what == "log":
		r, err = c.log(ctx, n)
	case n.what == "events":
		fields := "involvedObject.kind=" + n.kind + ",involvedObject.name=" + n.name
		n.resource, n.name = eventsResource, ""
		r, err = c.list(ctx, n, fields, maxEvents, 1)
	case n.name != "":
		r, err = c.get(ctx, n)
	default:
		r, err = c.list(ctx, n, "", pageSize, maxPages)
	}
	if err != nil {
		return &reply{err: err}
	}
	return r
}

// target is a resource as the reader requests it.
type target struct {
	path    string
	newItem func() runtime.Object
	newList func() (runtime.Object, error)
}

// target finds the path and the types of a resource. Custom resources are unstructured.
func (c *ClusterReader) target(gr schema.GroupResource, namespace string) (t target, err error) {
	group, version, namespaced := gr.Group, "", false
	if kind, ok := api.ByResource(gr); ok {
		version, namespaced = kind.Kind.Version, kind.Namespaced
		t.newItem, t.newList = kind.New, kind.NewList
	} else {
		kinds, err := c.kinds()
		i := slices.IndexFunc(kinds, func(k customKind) bool { return k.resource == gr })
		if i < 0 {
			return t, cmp.Or(err, fmt.Errorf("the API server does not serve %s", gr))
		}
		version, namespaced = kinds[i].version, kinds[i].namespaced
		t.newItem = func() runtime.Object { return &unstructured.Unstructured{} }
		t.newList = func() (runtime.Object, error) { return &unstructured.UnstructuredList{}, nil }
	}
	t.path = "/api/" + version
	if group != "" {
		t.path = "/apis/" + group + "/" + version
	}
	if namespaced && namespace != "" {
		t.path += "/namespaces/" + namespace
	}
	t.path += "/" + gr.Resource
	return t, nil
}

// into decodes the answer to a request.
func into(ctx context.Context, request *rest.Request, object runtime.Object) error {
	u, ok := object.(runtime.Unstructured)
	if !ok {
		return request.Do(ctx).Into(object)
	}
	result := request.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := result.Error(); err != nil { // it has the message of the server, which Raw has not
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	return runtime.DecodeInto(unstructured.UnstructuredJSONScheme, data, u)
}

func (c *ClusterReader) get(ctx context.Context, n need) (*reply, error) {
	t, err := c.target(n.resource, n.namespace)
	if err != nil {
		return nil, err
	}
	object := t.newItem()
	err = into(ctx, c.client.Get().AbsPath(t.path).Name(n.name), object)
	switch {
	case isMissingObject(err):
		return newReply(nil), nil
	case err != nil:
		return nil, err
	}
	return newReply([]runtime.Object{object}), nil
}

// isMissingObject distinguishes a missing object from a resource that the server does not have.
func isMissingObject(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

func (c *ClusterReader) list(ctx context.Context, n need, fields string, size int64, pages int) (*reply, error) {
	t, err := c.target(n.resource, n.namespace)
	if err != nil {
		return nil, err
	}
	var all []runtime.Object
	next := ""
	for range pages {
		page, err := t.newList()
		if err != nil {
			return nil, err
		}
		request := c.client.Get().AbsPath(t.path).Param("limit", fmt.Sprint(size))
		if fields != "" {
			request.Param("fieldSelector", fields)
		}
		if next != "" {
			request.Param("continue", next)
		}
		if err := into(ctx, request, page); err != nil {
			return nil, err
		}
		objects, err := meta.ExtractList(page)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
		if m, err := meta.ListAccessor(page); err == nil {
			next = m.GetContinue()
		}
		if next == "" {
			break
		}
	}
	if next != "" && fields == "" {
		return nil, fmt.Errorf("there are more than %d objects", size*int64(pages))
	}
	return newReply(all), nil
}

func (c *ClusterReader) log(ctx context.Context, n need) (*reply, error) {
	request := c.client.Get().AbsPath("/api/v1/namespaces/"+n.namespace+"/pods/"+n.name+"/log").
		Param("container", n.container).Param("tailLines", fmt.Sprint(logLines)).Param("limitBytes", fmt.Sprint(maxLogBytes))
	if n.previous {
		request.Param("previous", "true")
	}
	stream, err := request.Stream(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
		return &reply{}, nil // there is no log
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var text bytes.Buffer
	if _, err := io.CopyN(&text, stream, maxLogBytes); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return &reply{text: text.String()}, nil
}

var _ Reader = (*ClusterReader)(nil)

// Unauthorized reports whether an error means that the caller is not authenticated.
func Unauthorized(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusUnauthorized
}

// Caller returns the user and the groups of the caller.
func (c *ClusterReader) Caller(ctx context.Context) (user string, groups []string, err error) {
	review := &authenticationv1.SelfSubjectReview{}
	err = c.client.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").Body(review).Do(ctx).Into(review)
	return review.Status.UserInfo.Username, review.Status.UserInfo.Groups, err
}

// Review asks all authorizers of the API server about a request. It needs the right to create
// SubjectAccessReviews.
func (c *ClusterReader) Review(ctx context.Context, r Request) (allowed bool, reason string, err error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: r.User, Groups: r.Groups}}
	if r.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
		}
	}
	err = c.client.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").Body(review).Do(ctx).Into(review)
	return review.Status.Allowed, clean(oneLine(review.Status.Reason), maxText), err
}
