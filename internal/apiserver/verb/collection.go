package verb

import (
	"context"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
)

// deleteCollectionWorkers is upstream's default of --delete-collection-workers.
const deleteCollectionWorkers = 4

// DeleteCollection deletes every object that the list matches and returns them.
func (op *Operation) DeleteCollection(ctx context.Context, opts *metav1.DeleteOptions, req *registry.ListRequest) (*registry.Page, error) {
	op.warnAboutOrphans(opts)
	p, err := op.List(ctx, req)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(deleteCollectionWorkers)
	for _, entry := range p.Entries {
		group.Go(func() error {
			one := *op
			one.Namespace, one.Name = entry.Namespace, entry.Name
			_, _, err := one.Delete(ctx, opts.DeepCopy())
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})
	}
	return p, group.Wait()
}

// ReturnsDeleted are the kinds whose DELETE answers with the object; the others answer with a
// Status.
var ReturnsDeleted = map[schema.GroupResource]bool{
	{Resource: "persistentvolumeclaims"}:                           true,
	{Resource: "persistentvolumes"}:                                true,
	{Resource: "pods"}:                                             true,
	{Resource: "podtemplates"}:                                     true,
	{Resource: "resourcequotas"}:                                   true,
	{Resource: "serviceaccounts"}:                                  true,
	{Resource: "services"}:                                         true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}:              true,
	{Group: "storage.k8s.io", Resource: "csinodes"}:                true,
	{Group: "storage.k8s.io", Resource: "storageclasses"}:          true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:       true,
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}: true,
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:          true,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:         true,
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}: true,
	{Group: "resource.k8s.io", Resource: "resourceslices"}:         true,
}
