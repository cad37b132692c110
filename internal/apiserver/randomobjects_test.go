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

// odd fills objects with unusual values. Each choice is a byte of the input; after its end choices
// are pseudo-random.
type odd struct {
	data []byte
	rest *rand.Rand
	left int // how many more values may be nested
}

func newOdd(data []byte) *odd {
	seed := uint64(len(data))
	for _, b := range data {
		seed = seed*31 + uint64(b)
	}
	return &odd{data: data, rest: rand.New(rand.NewPCG(seed, 1)), left: 1000}
}

// pick chooses one of n.
func (o *odd) pick(n int) int {
	if len(o.data) == 0 {
		return o.rest.IntN(n)
	}
	b := o.data[0]
	o.data = o.data[1:]
	return int(b) % n
}

func one[T any](o *odd, of []T) T { return of[o.pick(len(of))] }

var (
	oddTexts = []string{"", "a", "b", "c", "default", "kube-system", "a/b", "example.com/a", "example.com", "widgets.example.com", "widgets", "Widget", "v1", "v1beta1", "*", "/", "//", "/a/../b", "..", "-", "A_b", "ü", "\x00", "\u2028",
		"0", "1", "-1", "0-3,5", "3-1", "99999999999999999999", "1e-9", "10%", "-5%", "1.5Gi", "10.0.0.1", "::1", "::ffff:1.2.3.4", "010.0.0.1", "10.0.0.0/8", "10.0.0.1/33", "fe80::1/64", "127.0.0.1", "None", "http", "https://a/b?c", "https://[::1]:443",
		"cpu", "memory", "pods", "hugepages-2Mi", "nvidia.com/gpu", "requests.cpu", "limits.memory", "count/pods", "ephemeral-storage", "kubernetes.io/os", "metadata.name", "metadata.labels['a']", "spec.nodeName", "status.podIP", "limits.cpu",
		"kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "kubernetes.io/service-account-token", "kubernetes.io/kube-apiserver-client", "example.com/signer", "Approved", "Denied", "Ready", "True", "False", "Unknown", "system:node:a", "system:masters",
		"* * * * *", "@every 1h", "TZ=UTC 0 0 1 1 *", "Europe/Berlin", "CRON_TZ=a", "1h", "PT1H", "2020-01-01T00:00:00Z", "self.a == 'b'", "object.metadata.name != ''", "device.driver == 'a'", "[", "Object{}", "rev", "^(a+)+$", ".spec.replicas", ".status.x[0]",
		"runtime/default", "localhost/", "kernel.shm_rmid_forced", "net.*", "CAP_SYS_ADMIN", "ALL", "get", "list", "create", "object", "array", "string", "integer", "set", "map", "atomic", "granular", "date-time", "byte", "#/definitions/a"}
	oddNumbers = []int64{0, 1, 2, 3, 10, 53, 80, 100, 443, 600, 3600, 30000, 65535, 65536, -1, -2, -1 << 31, 1<<31 - 1, 1<<63 - 1, -1 << 63, 1000000001}
	oddAmounts = []string{"0", "1", "-1", "100m", "1Gi", "1.5", "1e18", "9223372036854775807", "92233720368547758070", "0.0000000001", "-1n", "3E", "1Ei"}
	oddRaw     = []string{`null`, `{}`, `[]`, `"a"`, `1e400`, `{"a":{"b":[1,null]}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, `{"f:metadata":{"f:labels":{}}}`, `{"k:{":1}`, `[{"a":1},{"a":1}]`}
	oddBytes   = [][]byte{nil, {}, []byte("a"), {0, 255}, []byte("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"), []byte(`{"auths":{}}`)}
)

// oddWords are the valid values of string types, by type name: other fields often matter with one
// of them only.
var oddWords = map[string][]string{
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
func (o *odd) more(depth int) bool {
	o.left--
	return o.left > 0 && depth < 20
}

// fill gives v a value that has a JSON form.
func (o *odd) fill(v reflect.Value, depth int) {
	if o.known(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if o.pick(5) < 3 && o.more(depth) {
			v.Set(reflect.New(v.Type().Elem()))
			o.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && o.pick(8) > 0 {
				o.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if n := one(o, []int{0, 1, 1, 2, 3}); n > 0 && o.more(depth) {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				o.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for n := one(o, []int{0, 1, 2}); n > 0 && o.more(depth); n-- {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			o.fill(key, depth+1)
			o.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if words := oddWords[v.Type().Name()]; len(words) > 0 && o.pick(6) > 0 {
			v.SetString(one(o, words))
		} else {
			v.SetString(one(o, oddTexts))
		}
	case reflect.Bool:
		v.SetBool(o.pick(2) == 1)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(one(o, oddNumbers))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(o.pick(256)))
	case reflect.Float64:
		v.SetFloat(one(o, []float64{0, 1, -1.5, 1e308}))
	}
}

// known fills types with their own JSON form.
func (o *odd) known(v reflect.Value) bool {
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		at.Time = time.Unix(one(o, []int64{0, 1, 1600000000, 4000000000}), 0)
	case *metav1.MicroTime:
		at.Time = time.Unix(one(o, []int64{0, 1, 1600000000, 4000000000}), 1000)
	case *metav1.Duration:
		at.Duration = time.Duration(one(o, oddNumbers))
	case *resource.Quantity:
		*at = resource.MustParse(one(o, oddAmounts))
	case *intstr.IntOrString:
		if *at = intstr.FromString(one(o, oddTexts)); o.pick(2) == 0 {
			*at = intstr.FromInt32(int32(one(o, oddNumbers)))
		}
	case *runtime.RawExtension:
		at.Raw = []byte(one(o, oddRaw))
	case *metav1.FieldsV1:
		at.Raw = []byte(one(o, oddRaw))
	case *json.RawMessage:
		*at = []byte(one(o, oddRaw))
	case *[]byte:
		*at = one(o, oddBytes)
	case *metav1.TypeMeta: // the path decides it
	default:
		// Raw JSON in definitions.
		if v.Kind() == reflect.Struct && v.NumField() == 1 && v.Type().Field(0).Name == "Raw" {
			v.Field(0).SetBytes([]byte(one(o, oddRaw)))
			return true
		}
		return false
	}
	return true
}
