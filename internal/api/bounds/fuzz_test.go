package bounds

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FuzzQuantity holds the two ways to look at a document against each other: what the quick look lets pass has nothing to refuse.
func FuzzQuantity(f *testing.F) {
	for _, text := range []string{"1e-1000000000", "1.5Gi", "-0.1e+00000003", "1E9999", strings.Repeat("7", 1001), strings.Repeat("7", 600) + "-" + strings.Repeat("7", 600) + "M7", ".." + strings.Repeat("1.", 600), "12345e1234567"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := Quantity(text)
		if err == nil && len(text) < 100000 {
			_, _ = resource.ParseQuantity(text) // ends
		}
		if err == nil || suspect(text) {
			return
		}
		// The quick look counts digits in a row: others are no number.
		if _, wrong := resource.ParseQuantity(text); wrong == nil {
			t.Errorf("%q is refused (%v) and does not look like it", text, err)
		}
	})
}

// FuzzDocument and its messages: nothing stumbles over what is broken, and both forms are judged alike.
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
			return // the canonical form of a quantity may have a few digits more
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
