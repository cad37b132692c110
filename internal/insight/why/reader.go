package why

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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
	client rest.Interface
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
	return &ClusterReader{client}, nil
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

// path returns the path of a resource.
func path(kind *api.Kind, namespace string) string {
	p := "/api/" + kind.Kind.Version
	if kind.Kind.Group != "" {
		p = "/apis/" + kind.Kind.Group + "/" + kind.Kind.Version
	}
	if kind.Namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + kind.Resource
}

func (c *ClusterReader) get(ctx context.Context, n need) (*reply, error) {
	kind, ok := api.ByResource(n.resource)
	if !ok {
		return nil, fmt.Errorf("%s is no built-in resource", n.resource)
	}
	object := kind.New()
	err := c.client.Get().AbsPath(path(kind, n.namespace)).Name(n.name).Do(ctx).Into(object)
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
	kind, ok := api.ByResource(n.resource)
	if !ok {
		return nil, fmt.Errorf("%s is no built-in resource", n.resource)
	}
	var all []runtime.Object
	next := ""
	for range pages {
		page, err := kind.NewList()
		if err != nil {
			return nil, err
		}
		request := c.client.Get().AbsPath(path(kind, n.namespace)).Param("limit", fmt.Sprint(size))
		if fields != "" {
			request.Param("fieldSelector", fields)
		}
		if next != "" {
			request.Param("continue", next)
		}
		if err := request.Do(ctx).Into(page); err != nil {
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
