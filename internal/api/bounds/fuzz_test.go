package bounds

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FuzzQuantity compares the quick check with the full one: whatever the quick check accepts, the
// full one accepts too.
func FuzzQuantity(f *testing.F) {
	for _, text := range []string{"1e-1000000000", "1.5Gi", "-0.1e+00000003", "1E9999", strings.Repeat("7", 1001), strings.Repeat("7", 600) + "-" + strings.Repeat("7", 600) + "M7", ".." + strings.Repeat("1.", 600), "12345e1234567"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := Quantity(text)
		if err == nil && len(text) < 100000 {
			_, _ = resource.ParseQuantity(text) // must return
		}
		if err == nil || suspect(text) {
			return
		}
		// The quick check counts digits in a row; other texts are not numbers.
		if _, wrong := resource.ParseQuantity(text); wrong == nil {
			t.Errorf("%q is refused (%v) and does not look like it", text, err)
		}
	})
}

// FuzzDocument checks that invalid documents and messages do not panic, and that both forms of an
// object get the same verdict.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(podOf("limits", `"1e-1000000000"`)))
	f.Add([]byte(podOf("requests", `[1e-1000000000,{"a":{}}]`)))
	f.Add([]byte(`{"spec":{"containers":[[[{"resources":1e99999}]]],"overhead":{"a":"` + strings.Repeat("1", 1001) + `"}}`))
	f.Add([]byte("\x12\x10\x12\x0e\x42\x0c\x0a\x0a\x0a\x01c\x12\x05\x0a\x031e9"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Message(data, &corev1.Pod{})
		err := Document(data, &corev1.Pod{})
		var pod corev1.Pod
		if err != nil || len(data) > MaxQuantityDigits || json.Unmarshal(data, &pod) != nil {
			return // a quantity's canonical form may have a few more digits
		}
		raw, err := pod.Marshal()
		if err != nil {
			return
		}
		if err := Message(raw, &corev1.Pod{}); err != nil {
			t.Errorf("what a document may say is refused in a message: %v", err)
		}
	})
}
