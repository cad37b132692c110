package sources

import "testing"

// FuzzManifests parses arbitrary input as a manifest. All resulting pods must belong to this node.
func FuzzManifests(f *testing.F) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n---\nnull\n---\napiVersion: v1\nkind: PodList\nitems: []\n",
		`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}]}}]}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"kubernetes.io/config.source":"api"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"a: &a [x, x]\nb: [*a, *a]\n", "---\n---\n", "{", "apiVersion: v1\nkind: Service\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		pods, err := parse(raw, "file", "/a", "Node")
		if err != nil {
			return
		}
		for _, pod := range pods {
			if pod.Spec.NodeName != "Node" || pod.UID == "" || pod.Namespace == "" || pod.Annotations["kubernetes.io/config.source"] != "file" {
				t.Errorf("%+v is not a pod of this node's manifests", pod.ObjectMeta)
			}
		}
	})
}
