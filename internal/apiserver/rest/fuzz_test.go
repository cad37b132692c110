package rest

import (
	"testing"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// FuzzDeleteOptions decodes arbitrary bodies of deletions: each is refused, or can be validated.
func FuzzDeleteOptions(f *testing.F) {
	for _, body := range []string{`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1,"preconditions":{"uid":"x","resourceVersion":"1"},"propagationPolicy":"Orphan","dryRun":["All"]}`,
		"orphanDependents: true\npropagationPolicy: Foreground\n", "k8s\x00\n\x13\n\x02v1\x12\rDeleteOptions\x12\x02\x08\x05", `{"gracePeriodSeconds":1e999}`, `null`, ``} {
		for media := range byte(3) {
			f.Add(media, []byte(body))
		}
	}
	medias := []string{wire.MediaJSON, wire.MediaYAML, wire.MediaProtobuf}
	f.Fuzz(func(t *testing.T, media byte, body []byte) {
		opts, err := decodeDeleteOptions(medias[int(media)%len(medias)], body)
		if err != nil {
			// Upstream answers this one in the same way.
			if !wire.IsStatus(err) && !runtime.IsNotRegisteredError(err) {
				t.Errorf("the error is no Status: %v", err)
			}
			return
		}
		_ = metav1validation.ValidateDeleteOptions(opts)
	})
}
