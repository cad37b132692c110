package volume

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

var clusterTrustBundles = certificatesv1beta1.SchemeGroupVersion.WithResource("clustertrustbundles")

// clusterTrustBundle writes the certificates of one bundle, or of all matching bundles of a signer,
// without duplicates (KEP-3257).
func (p *projector) clusterTrustBundle(ctx context.Context, source *corev1.ClusterTrustBundleProjection, defaultMode fs.FileMode) (payload, error) {
	bundles, err := p.trustBundles(ctx, source)
	if err == nil && len(bundles) == 0 && !optional(source.Optional) {
		err = errors.New("no ClusterTrustBundle matches")
	}
	if err != nil {
		return nil, fmt.Errorf("clusterTrustBundle: %w", err)
	}
	blocks := map[string]bool{}
	for _, bundle := range bundles {
		rest := []byte(bundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			blocks[string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))] = true
		}
	}
	sorted := make([]string, 0, len(blocks))
	for block := range blocks {
		sorted = append(sorted, block)
	}
	slices.Sort(sorted)
	return payload{filepath.Clean(source.Path): file{data: []byte(strings.Join(sorted, "")), mode: defaultMode}}, nil
}

func (p *projector) trustBundles(ctx context.Context, source *corev1.ClusterTrustBundleProjection) ([]string, error) {
	if source.Name != nil {
		object, err := p.Client.Get(ctx, clusterTrustBundles, "", *source.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && optional(source.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		bundle, ok := object.(*certificatesv1beta1.ClusterTrustBundle)
		if !ok {
			return nil, fmt.Errorf("unexpected %T", object)
		}
		return []string{bundle.Spec.TrustBundle}, nil
	}
	if source.SignerName == nil || source.LabelSelector == nil {
		return nil, nil // without a selector nothing is selected
	}
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
	if err != nil {
		return nil, err
	}
	object, err := p.Client.List(ctx, clusterTrustBundles, "", metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.signerName", *source.SignerName).String(), LabelSelector: selector.String(),
	})
	if err != nil {
		return nil, err
	}
	list, ok := object.(*certificatesv1beta1.ClusterTrustBundleList)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", object)
	}
	var bundles []string
	for i := range list.Items {
		bundles = append(bundles, list.Items[i].Spec.TrustBundle)
	}
	return bundles, nil
}
