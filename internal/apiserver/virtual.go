package apiserver

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// virtualGet answers for what is not an object of its own: scale.
func (op *operation) virtualGet(ctx context.Context, opts *metav1.GetOptions) (obj runtime.Object, handled bool, err error) {
	if op.subresource == "scale" {
		obj, err = op.getScale(ctx, opts)
		return obj, true, err
	}
	if op.endpoint.kind.Virtual {
		return nil, true, apierrors.NewNotFound(op.endpoint.resource, op.name)
	}
	return nil, false, nil
}

func (op *operation) virtualList(context.Context) (obj runtime.Object, handled bool, err error) {
	if !op.endpoint.kind.Virtual {
		return nil, false, nil
	}
	list, err := op.endpoint.kind.NewList()
	return list, true, err
}

// virtualCreate carries out what is posted to subresources and to kinds that are not stored.
func (op *operation) virtualCreate(ctx context.Context, obj runtime.Object) (out runtime.Object, handled bool, err error) {
	if op.subresource == "" && !op.endpoint.kind.Virtual {
		return nil, false, nil
	}
	return nil, true, apierrors.NewInternalError(errNotImplemented)
}
