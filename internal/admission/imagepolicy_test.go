package admission

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"

	"github.com/knarr-project/knarr/internal/client/clienttest"
)

// imageServer denies the image "bad" and fails for "boom".
func imageServer(t *testing.T) (folder string, asked *[]imagepolicyv1alpha1.ImageReviewSpec) {
	asked = &[]imagepolicyv1alpha1.ImageReviewSpec{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Kind != "ImageReview" || review.APIVersion != "imagepolicy.k8s.io/v1alpha1" {
			t.Errorf("got %+v, %v", review, err)
		}
		*asked = append(*asked, review.Spec)
		has := func(image string) bool {
			return slices.Contains(review.Spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
		}
		if has("boom") {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		review.Status = imagepolicyv1alpha1.ImageReviewStatus{Allowed: !has("bad"), AuditAnnotations: map[string]string{"k": "v", "not/a/key": "x"}}
		if has("why") {
			review.Status.Reason = "because"
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	folder = t.TempDir()
	text := "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: '" + server.URL + "'}}]}"
	if err := os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder, asked
}

// imageServerConfig returns the kubeconfig file of a server.
func imageServerConfig(t *testing.T) string {
	folder, _ := imageServer(t)
	return filepath.Join(folder, "kubeconfig")
}

func TestImagePolicyFollowsTheServersAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		images, before []string
		closed         bool // what an unreachable server means
		want           string
		annotations    map[string]string
		unasked        bool
		forgets        bool // lifetimes of -1
	}{
		"a good image":                {images: []string{"good"}, annotations: map[string]string{"imagepolicywebhook.image-policy.k8s.io/k": "v"}},
		"a bad image":                 {images: []string{"good", "bad"}, want: `pods "p" is forbidden: one or more images rejected by webhook backend`},
		"a bad image, with a reason":  {images: []string{"bad", "why"}, want: `pods "p" is forbidden: image policy webhook backend denied one or more images: because`},
		"no answer, default allow":    {images: []string{"boom"}, annotations: map[string]string{"imagepolicywebhook.image-policy.k8s.io/failed-open": "true"}},
		"no answer, default deny":     {images: []string{"boom"}, closed: true, want: "an error on the server"},
		"a good image, without cache": {images: []string{"good"}, annotations: map[string]string{"imagepolicywebhook.image-policy.k8s.io/k": "v"}, forgets: true},
		"a bad image, without cache":  {images: []string{"bad"}, want: "rejected by webhook backend", forgets: true},
		"an update of a label":        {images: []string{"bad"}, before: []string{"bad"}, unasked: true},
		"an update of an image":       {images: []string{"bad"}, before: []string{"good"}, want: "rejected by webhook backend"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, asked := imageServer(t)
			settings := `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [{"name": "ImagePolicyWebhook", "configuration": {"imagePolicy": {"kubeConfigFile": "kubeconfig", "retryBackoff": 1, "defaultAllow": true}}}]}`
			if tc.closed {
				settings = strings.Replace(settings, "true", "false", 1)
			}
			if tc.forgets {
				settings = strings.Replace(settings, `"retryBackoff"`, `"allowTTL": -1, "denyTTL": -1, "retryBackoff"`, 1)
			}
			if err := os.WriteFile(filepath.Join(folder, "all"), []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			config := Config{Enable: []string{"ImagePolicyWebhook"}, Disable: []string{"ServiceAccount"}}
			var err error
			if config.Files, err = LoadFiles(filepath.Join(folder, "all"), everyPlugin); err != nil {
				t.Fatal(err)
			}
			chain, err := Default(t.Context(), clienttest.NewMemory(namespaceWith(nil)), config)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time from the cache
				a, annotations := attributesOf(podOf(tc.images)), map[string]string{}
				a.Annotate = func(key, value string) {
					if strings.Contains(key, "image-policy") {
						annotations[key] = value
					}
				}
				if tc.before != nil {
					a.Operation, a.OldObject = Update, podOf(tc.before)
				}
				err := chain.Validate(t.Context(), a)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				if tc.want == "" && !tc.unasked && !maps.Equal(annotations, tc.annotations) {
					t.Errorf("annotations are %v, want %v", annotations, tc.annotations)
				}
			}
			switch n := len(*asked); {
			case tc.unasked && n != 0, tc.forgets && n != 2, !tc.unasked && !tc.forgets && n != 1 && !slices.Contains(tc.images, "boom"):
				t.Errorf("the server got %d requests", n)
			case n > 0 && !maps.Equal((*asked)[0].Annotations, map[string]string{"a.image-policy.k8s.io/ticket": "1"}):
				t.Errorf("it got the annotations %v", (*asked)[0].Annotations)
			}
		})
	}
}

func podOf(images []string) *corev1.Pod {
	pod := testPod()
	pod.Annotations = map[string]string{"a.image-policy.k8s.io/ticket": "1", "other": "2"}
	pod.Spec.Containers = nil
	for _, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c", Image: image})
	}
	return pod
}

func TestImagePolicySettingsHaveBounds(t *testing.T) {
	for text, want := range map[string]string{
		`{imagePolicy: {kubeConfigFile: a}}`:                                              "",
		`{imagePolicy: {}}`:                                                               "kubeConfigFile is missing",
		`{imagePolicy: {kubeConfigFile: a, allowTTL: 4000}}`:                              "allowTTL is 4000",
		`{imagePolicy: {kubeConfigFile: a, retryBackoff: -2}}`:                            "retryBackoff is -2",
		`{imagePolicy: {kubeConfigFile: a, allowTTL: -1, denyTTL: -1, retryBackoff: -1}}`: "",
		`{imagePolicy: {kubeConfigFile: a, unknown: 1}}`:                                  "unknown",
	} {
		var files Files
		err := files.take("ImagePolicyWebhook", []byte(text), "/folder")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
		if err == nil && files.ImagePolicy.KubeConfigFile != "/folder/a" {
			t.Errorf("the file is %s", files.ImagePolicy.KubeConfigFile)
		}
	}
}
