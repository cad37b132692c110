package envtest_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/knarrtest/envtest"
)

func definition() *apiextensionsv1.CustomResourceDefinition {
	schema := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ships.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Ship", ListKind: "ShipList", Plural: "ships", Singular: "ship"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, Schema: schema}, {Name: "v2", Served: true, Schema: schema},
			},
		},
	}
}

func stop(t *testing.T, e *envtest.Environment) {
	t.Helper()
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAnEnvironmentServesDefinitions(t *testing.T) {
	t.Parallel()
	e := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()}}
	config, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, e)
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "ships"}).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if len(e.CRDs) != 1 || e.CRDs[0].UID == "" {
		t.Error("CRDs does not have what the server answered")
	}
	// As with envtest, there is no controller, and pods need no service account.
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	if _, err := k.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAUserHasAKubeconfig(t *testing.T) {
	t.Parallel()
	e := &envtest.Environment{}
	if _, err := e.Start(); err != nil {
		t.Fatal(err)
	}
	defer stop(t, e)
	user, err := e.AddUser(envtest.User{Name: "jane", Groups: []string{"developers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]func() ([]byte, error){"jane": user.KubeConfig, "kubernetes-admin": func() ([]byte, error) { return e.KubeConfig, nil }} {
		data, err := content()
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		k, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if name == "jane" && !apierrors.IsForbidden(err) || name != "jane" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFlagsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	e := &envtest.Environment{}
	e.ControlPlane.GetAPIServer().Configure().Append("runtime-config", "batch/v1=false").Set("disable-admission-plugins", "LimitRanger", "ServiceAccount")
	config, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, e)
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("jobs: %v", err)
	}
	bad := &envtest.Environment{}
	bad.ControlPlane.GetAPIServer().Configure().Set("no-such-flag", "x")
	if _, err := bad.Start(); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("an unknown flag: %v", err)
	}
}

func TestAnExistingClusterIsNotStopped(t *testing.T) {
	t.Parallel()
	first := &envtest.Environment{}
	config, err := first.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, first)
	yes := true
	second := &envtest.Environment{UseExistingCluster: &yes, Config: config, CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()},
		CRDInstallOptions: envtest.CRDInstallOptions{CleanUpAfterUse: true}}
	if _, err := second.Start(); err != nil {
		t.Fatal(err)
	}
	stop(t, second)
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := d.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Get(ctx, "ships.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		t.Error("the definition is there after CleanUpAfterUse")
	}
}

// shipV1 is the hub and shipV2 converts to it, as in controller-runtime's package conversion.
type (
	shipV1 struct{ corev1.ConfigMap }
	shipV2 struct{ corev1.ConfigMap }
)

func (*shipV1) Hub()                  {}
func (*shipV2) ConvertTo(any) error   { return nil }
func (*shipV2) ConvertFrom(any) error { return nil }

func TestConvertibleKindsGetAConversionWebhook(t *testing.T) {
	t.Parallel()
	known := runtime.NewScheme()
	known.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Ship"}, &shipV1{})
	known.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Ship"}, &shipV2{})
	e := &envtest.Environment{Scheme: known, CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()}}
	if _, err := e.Start(); err != nil {
		t.Fatal(err)
	}
	folder := e.WebhookInstallOptions.LocalServingCertDir
	conversion := e.CRDs[0].Spec.Conversion
	if conversion.Strategy != apiextensionsv1.WebhookConverter || !strings.HasSuffix(*conversion.Webhook.ClientConfig.URL, "/convert") {
		t.Errorf("conversion %+v", conversion)
	}
	stop(t, e)
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder of certificates: %v", err)
	}
}
