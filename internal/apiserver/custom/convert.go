package custom

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// webhookTimeout is the timeout of a conversion, as upstream.
const webhookTimeout = 30 * time.Second

// Convert converts the object to another version, and prunes it with that version's schema. It
// returns the object itself if it already has the version; otherwise it does not change it.
func (d *Definition) Convert(u *unstructured.Unstructured, version string) (*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	if from.Version == version {
		return u, nil
	}
	to := schema.GroupVersion{Group: d.CRD.Spec.Group, Version: version}
	target, ok := d.Any(version)
	if !ok {
		// This is upstream's text, which operators match: an apply fails with it while
		// managedFields name a removed version.
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to)
	}
	if c := d.CRD.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		ctx, cancel := context.WithTimeout(context.Background(), webhookTimeout)
		defer cancel()
		since := time.Now()
		out, err := d.convertByWebhook(ctx, u, to)
		d.metrics.observe(d.CRD.Name, from.Version, version, time.Since(since), err)
		if err != nil {
			return nil, err
		}
		return out, target.repair(out)
	}
	out := u.DeepCopy()
	out.SetAPIVersion(to.String())
	return out, target.repair(out)
}

// convertByWebhook calls the definition's webhook.
func (d *Definition) convertByWebhook(ctx context.Context, u *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	hook := d.CRD.Spec.Conversion.Webhook
	if hook == nil || hook.ClientConfig == nil {
		return nil, fmt.Errorf("conversion of %s to %s: the definition names no webhook", from, to)
	}
	request, version, uid, err := conversionRequest(hook.ConversionReviewVersions, u, to)
	if err != nil {
		return nil, err
	}
	response, err := d.call(ctx, hook.ClientConfig, request)
	if err != nil {
		return nil, failed(callFailure, fmt.Errorf("conversion webhook for %s failed: %w", from, err))
	}
	objects, err := conversionResponse(response, version, uid)
	if err != nil {
		return nil, failed(malformedFailure, fmt.Errorf("conversion webhook for %s failed: %w", from, err))
	}
	if len(objects) != 1 {
		return nil, failed(malformedFailure, fmt.Errorf("conversion webhook for %s returned %d objects, expected 1", from, len(objects)))
	}
	out, err := readConverted(objects[0].Raw)
	if err != nil {
		return nil, failed(malformedFailure, fmt.Errorf("conversion webhook for %s failed: %w", from, err))
	}
	if err := checkConverted(u, out, to); err != nil {
		return nil, failed(objectFailure, fmt.Errorf("conversion webhook for %s returned invalid %w", from, err))
	}
	return out, nil
}
