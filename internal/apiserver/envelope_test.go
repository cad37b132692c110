package apiserver

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// FuzzOpenEnvelope compares the reader of envelopes with the library's, which copies its input.
func FuzzOpenEnvelope(f *testing.F) {
	raw, err := wire.MarshalProtobuf(configMap("one"))
	if err != nil {
		f.Fatal(err)
	}
	whole := wire.Envelope(corev1.SchemeGroupVersion.WithKind("ConfigMap"), raw)
	for _, seed := range [][]byte{
		whole, whole[:len(whole)-3], []byte(wire.ProtobufPrefix), nil, append(bytes.Clone(whole), 0x12, 0x01, 'x'), append(bytes.Clone(whole), 0x0a, 0x03, 0x12, 0x01, 'X'),
		append(bytes.Clone(whole), 0x10, 0x01), append(bytes.Clone(whole), 0x28, 0x01), append(bytes.Clone(whole), 0x2b, 0x2c), append(bytes.Clone(whole), 0x1a, 0x01, 'g'),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		gvk, raw, err := wire.OpenEnvelope(data)
		content, ok := bytes.CutPrefix(data, []byte(wire.ProtobufPrefix))
		var u runtime.Unknown
		if want := u.Unmarshal(content); !ok || want != nil {
			if err == nil {
				t.Errorf("%x: read, but %v", data, want)
			}
			return
		}
		if want := schema.FromAPIVersionAndKind(u.APIVersion, u.Kind); err != nil || gvk != want || !bytes.Equal(raw, u.Raw) {
			t.Errorf("%x: %v %x (%v), want %v %x", data, gvk, raw, err, want, u.Raw)
		}
	})
}
