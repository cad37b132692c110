package apiserver

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// randomFiller fills objects with unusual values. Each choice is a byte of the input; after its end
// choices are pseudo-random.
type randomFiller struct {
	data []byte
	rest *rand.Rand
	left int // how many more values may be nested
}

func newRandomFiller(data []byte) *randomFiller {
	seed := uint64(len(data))
	for _, b := range data {
		seed = seed*31 + uint64(b)
	}
	return &randomFiller{data: data, rest: rand.New(rand.NewPCG(seed, 1)), left: 1000}
}

// pick chooses one of n.
func (f *randomFiller) pick(n int) int {
	if len(f.data) == 0 {
		return f.rest.IntN(n)
	}
	b := f.data[0]
	f.data = f.data[1:]
	return int(b) % n
}

func one[T any](f *randomFiller, of []T) T { return of[f.pick(len(of))] }

var (
	randomTexts = []string{"", "a", "b", "c", "default", "kube-system", "a/b", "example.com/a", "example.com", "widgets.example.com", "widgets", "Widget", "v1", "v1beta1", "*", "/", "//", "/a/../b", "..", "-", "A_b", "ü", "\x00", "\u2028",
		"0", "1", "-1", "0-3,5", "3-1", "99999999999999999999", "1e-9", "10%", "-5%", "1.5Gi", "10.0.0.1", "::1", "::ffff:1.2.3.4", "010.0.0.1", "10.0.0.0/8", "10.0.0.1/33", "fe80::1/64", "127.0.0.1", "None", "http", "https://a/b?c", "https://[::1]:443",
		"cpu", "memory", "pods", "hugepages-2Mi", "nvidia.com/gpu", "requests.cpu", "limits.memory", "count/pods", "ephemeral-storage", "kubernetes.io/os", "metadata.name", "metadata.labels['a']", "spec.nodeName", "status.podIP", "limits.cpu",
		"kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "kubernetes.io/service-account-token", "kubernetes.io/kube-apiserver-client", "example.com/signer", "Approved", "Denied", "Ready", "True", "False", "Unknown", "system:node:a", "system:masters",
		"* * * * *", "@every 1h", "TZ=UTC 0 0 1 1 *", "Europe/Berlin", "CRON_TZ=a", "1h", "PT1H", "2020-01-01T00:00:00Z", "self.a == 'b'", "object.metadata.name != ''", "device.driver == 'a'", "[", "Object{}", "rev", "^(a+)+$", ".spec.replicas", ".status.x[0]",
		"runtime/default", "localhost/", "kernel.shm_rmid_forced", "net.*", "CAP_SYS_ADMIN", "ALL", "get", "list", "create", "object", "array", "string", "integer", "set", "map", "atomic", "granular", "date-time", "byte", "#/definitions/a"}
	randomNumbers    = []int64{0, 1, 2, 3, 10, 53, 80, 100, 443, 600, 3600, 30000, 65535, 65536, -1, -2, -1 << 31, 1<<31 - 1, 1<<63 - 1, -1 << 63, 1000000001}
	randomQuantities = []string{"0", "1", "-1", "100m", "1Gi", "1.5", "1e18", "9223372036854775807", "92233720368547758070", "0.0000000001", "-1n", "3E", "1Ei"}
	randomJSON       = []string{`null`, `{}`, `[]`, `"a"`, `1e400`, `{"a":{"b":[1,null]}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, `{"f:metadata":{"f:labels":{}}}`, `{"k:{":1}`, `[{"a":1},{"a":1}]`}
	randomBytes      = [][]byte{nil, {}, []byte("a"), {0, 255}, []byte("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"), []byte(`{"auths":{}}`)}
)

// typedWords are the valid values of string types, by type name: other fields often matter with one
// of them only.
var typedWords = map[string][]string{
	"Protocol": {"TCP", "UDP", "SCTP"}, "PullPolicy": {"Always", "Never", "IfNotPresent"}, "RestartPolicy": {"Always", "Never", "OnFailure"}, "ContainerRestartPolicy": {"Always", "Never", "OnFailure"},
	"DNSPolicy": {"ClusterFirst", "Default", "None"}, "ServiceType": {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}, "ServiceAffinity": {"None", "ClientIP"}, "IPFamily": {"IPv4", "IPv6"},
	"IPFamilyPolicy": {"SingleStack", "PreferDualStack", "RequireDualStack"}, "TaintEffect": {"NoSchedule", "PreferNoSchedule", "NoExecute"}, "TolerationOperator": {"Exists", "Equal", "Lt", "Gt"},
	"LabelSelectorOperator": {"In", "NotIn", "Exists", "DoesNotExist"}, "NodeSelectorOperator": {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}, "UnsatisfiableConstraintAction": {"DoNotSchedule", "ScheduleAnyway"},
	"DeploymentStrategyType": {"Recreate", "RollingUpdate"}, "DaemonSetUpdateStrategyType": {"RollingUpdate", "OnDelete"}, "StatefulSetUpdateStrategyType": {"RollingUpdate", "OnDelete"}, "PodManagementPolicyType": {"OrderedReady", "Parallel"},
	"CompletionMode": {"Indexed", "NonIndexed"}, "PodFailurePolicyAction": {"FailJob", "FailIndex", "Ignore", "Count"}, "PodFailurePolicyOnExitCodesOperator": {"In", "NotIn"}, "ConcurrencyPolicy": {"Allow", "Forbid", "Replace"},
	"MetricSourceType": {"Resource", "Pods", "Object", "External", "ContainerResource"}, "MetricTargetType": {"Utilization", "Value", "AverageValue"}, "ScalingPolicySelect": {"Max", "Min", "Disabled"}, "HPAScalingPolicyType": {"Pods", "Percent"},
	"PersistentVolumeMode": {"Filesystem", "Block"}, "PersistentVolumeAccessMode": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}, "PersistentVolumeReclaimPolicy": {"Retain", "Delete", "Recycle"},
	"VolumeBindingMode": {"Immediate", "WaitForFirstConsumer"}, "AddressType": {"IPv4", "IPv6", "FQDN"}, "PathType": {"Exact", "Prefix", "ImplementationSpecific"}, "PolicyType": {"Ingress", "Egress"}, "LimitType": {"Container", "Pod", "PersistentVolumeClaim"},
	"ResourceQuotaScope": {"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"}, "ScopeSelectorOperator": {"In", "NotIn", "Exists", "DoesNotExist"}, "OSName": {"linux", "windows"},
	"SeccompProfileType": {"RuntimeDefault", "Localhost", "Unconfined"}, "AppArmorProfileType": {"RuntimeDefault", "Localhost", "Unconfined"}, "ResourceScope": {"Namespaced", "Cluster"}, "ConversionStrategyType": {"None", "Webhook"},
	"PriorityLevelEnablement": {"Limited", "Exempt"}, "LimitResponseType": {"Queue", "Reject"}, "SubjectKind": {"User", "Group", "ServiceAccount"}, "FlowDistinguisherMethodType": {"ByUser", "ByNamespace"}, "PatchType": {"JSONPatch", "ApplyConfiguration"},
	"FailurePolicyType": {"Fail", "Ignore"}, "MatchPolicyType": {"Exact", "Equivalent"}, "ScopeType": {"*", "Cluster", "Namespaced"}, "SideEffectClass": {"None", "NoneOnDryRun", "Some"}, "OperationType": {"*", "CREATE", "UPDATE", "DELETE", "CONNECT"},
	"ValidationAction": {"Deny", "Warn", "Audit"}, "ParameterNotFoundActionType": {"Allow", "Deny"}, "DeviceAllocationMode": {"ExactCount", "All"}, "KeyUsage": {"signing", "client auth", "server auth", "any"}, "PreemptionPolicy": {"Never", "PreemptLowerPriority"},
	"URIScheme": {"HTTP", "HTTPS"}, "MountPropagationMode": {"None", "HostToContainer", "Bidirectional"}, "HostPathType": {"", "Directory", "File"}, "StorageMedium": {"", "Memory", "HugePages"}, "SecretType": {"Opaque", "kubernetes.io/tls"},
	"UnhealthyPodEvictionPolicyType": {"AlwaysAllow", "IfHealthyBudget"}, "ConditionStatus": {"True", "False", "Unknown"}, "ContainerResizePolicy": {"NotRequired", "RestartContainer"}, "NamespacePhase": {"Active", "Terminating"},
}

// more reports whether to nest another value; some kinds are recursive (schemas).
func (f *randomFiller) more(depth int) bool {
	f.left--
	return f.left > 0 && depth < 20
}

// fill gives v a value that has a JSON form.
func (f *randomFiller) fill(v reflect.Value, depth int) {
	if f.known(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.pick(5) < 3 && f.more(depth) {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && f.pick(8) > 0 {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if n := one(f, []int{0, 1, 1, 2, 3}); n > 0 && f.more(depth) {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for n := one(f, []int{0, 1, 2}); n > 0 && f.more(depth); n-- {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth+1)
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if words := typedWords[v.Type().Name()]; len(words) > 0 && f.pick(6) > 0 {
			v.SetString(one(f, words))
		} else {
			v.SetString(one(f, randomTexts))
		}
	case reflect.Bool:
		v.SetBool(f.pick(2) == 1)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(one(f, randomNumbers))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.pick(256)))
	case reflect.Float64:
		v.SetFloat(one(f, []float64{0, 1, -1.5, 1e308}))
	}
}

// known fills types with their own JSON form.
func (f *randomFiller) known(v reflect.Value) bool {
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		at.Time = time.Unix(one(f, []int64{0, 1, 1600000000, 4000000000}), 0)
	case *metav1.MicroTime:
		at.Time = time.Unix(one(f, []int64{0, 1, 1600000000, 4000000000}), 1000)
	case *metav1.Duration:
		at.Duration = time.Duration(one(f, randomNumbers))
	case *resource.Quantity:
		*at = resource.MustParse(one(f, randomQuantities))
	case *intstr.IntOrString:
		if *at = intstr.FromString(one(f, randomTexts)); f.pick(2) == 0 {
			*at = intstr.FromInt32(int32(one(f, randomNumbers)))
		}
	case *runtime.RawExtension:
		at.Raw = []byte(one(f, randomJSON))
	case *metav1.FieldsV1:
		at.Raw = []byte(one(f, randomJSON))
	case *json.RawMessage:
		*at = []byte(one(f, randomJSON))
	case *[]byte:
		*at = one(f, randomBytes)
	case *metav1.TypeMeta: // the path decides it
	default:
		// Raw JSON in definitions.
		if v.Kind() == reflect.Struct && v.NumField() == 1 && v.Type().Field(0).Name == "Raw" {
			v.Field(0).SetBytes([]byte(one(f, randomJSON)))
			return true
		}
		return false
	}
	return true
}
