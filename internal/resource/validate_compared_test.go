package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Core kinds. The wanted errors are those of upstream's API server.
func TestNewObjectsAreToldWhatIsWrongWithThem(t *testing.T) {
	pod := func(spec string) string { return "apiVersion: v1\nkind: Pod\nspec: {" + spec + "}\n" }
	mounted := func(container string) string {
		return pod("restartPolicy: Never, volumes: [{name: v, persistentVolumeClaim: {claimName: a}}], containers: [{name: c, image: i, " + container + "}]")
	}
	pv := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + spec + "}\n"
	}
	claim := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {" + spec + "}\n"
	}
	cron := func(spec string) string {
		return "apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '* * * * *', jobTemplate: {spec: {" + spec + ", template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}\n"
	}
	limits := func(most, least, ratio string) string {
		return "apiVersion: v1\nkind: LimitRange\nspec: {limits: [{type: Container, max: {memory: " + most + "}, min: {memory: " + least + "}, maxLimitRequestRatio: {memory: " + ratio + "}}]}\n"
	}
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80, protocol: TCP, targetPort: 80, nodePort: 7}], sessionAffinity: None, " + spec + "}\n"
	}
	const iscsi = "iscsi: {targetPortal: a, lun: 0, iqn: "
	const restart = `resizePolicy: Invalid value: "RestartContainer": must be 'NotRequired' when pod ` + "`restartPolicy` is 'Never'"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a resize that restarts what never restarts", mounted("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"), []string{"spec.containers[0]." + restart}},
		{"a resize that restarts what runs once", pod("restartPolicy: Always, containers: [{name: c, image: i}], initContainers: [{name: d, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]"), []string{
			`spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers`}},
		{"two ways to a part of a volume", mounted("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b, subPath: x, subPathExpr: z}]"), []string{`spec.containers[0].volumeMounts[1].subPathExpr: Invalid value: "z": subPathExpr and subPath are mutually exclusive`}},
		{"containers without names", pod("containers: [{image: i}, {image: i}]"), []string{"spec.containers[0].name: Required value", "spec.containers[1].name: Required value", `spec.containers[1].name: Duplicate value: ""`}},
		{"a claim of a volume without a name", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}], containers: [{name: c, image: i}]}\n", []string{"spec.volumes[0].name: Required value"}},
		{"an access mode that is alone, beside one that is none and one that is", claim("accessModes: [x, ReadWriteMany, ReadWriteOncePod], resources: {requests: {storage: 1Gi}}"), []string{`spec.accessModes: Unsupported value: "x"`, "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"}},
		{"options of a volume that has none", strings.Replace(pv("hostPath: {path: /a}"), "spec", "metadata: {annotations: {volume.beta.kubernetes.io/mount-options: a}}\nspec", 1), []string{"metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"}},
		{"options of a volume that has some", strings.Replace(pv("nfs: {server: a, path: /b}"), "spec", "metadata: {annotations: {volume.beta.kubernetes.io/mount-options: a}}\nspec", 1), nil},
		{"no swap that is some", "apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {swap: {capacity: 0}}}\n", []string{"metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"}},
		{"a device of no volume, twice", mounted("volumeDevices: [{name: w, devicePath: /a}, {name: w, devicePath: /b}]"), []string{`volumeDevices[0].name: Not found: "w"`, `volumeDevices[1].name: Not found: "w"`, `volumeDevices[1].name: Invalid value: "w": must be unique`}},
		{"a file of variables in a volume that cannot be", mounted("env: [{name: A, valueFrom: {fileKeyRef: {key: a, path: b, volumeName: A_}}}]"), []string{`fileKeyRef.volumeName: Invalid value: "A_": a lowercase RFC 1123 label`, `fileKeyRef.volumeName: Not found: "A_"`}},
		{"two devices nowhere", mounted("volumeDevices: [{name: v}, {name: v}]"), []string{"volumeDevices[0].devicePath: Required value", "volumeDevices[1].devicePath: Required value", `volumeDevices[1].devicePath: Invalid value: "": must be unique`, `volumeDevices[1].name: Invalid value: "v": must be unique`}},
		{"no claims of a pod as a whole are claims as well", pod("resources: {claims: []}, containers: [{name: c, image: i}]"), []string{"spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"}},
		{"a token in place of another file is warned of", pod("serviceAccountName: a, volumes: [{name: v, projected: {sources: [{secret: {name: s, items: [{key: k, path: p}]}}, {serviceAccountToken: {path: p, expirationSeconds: 3600}}]}}], containers: [{name: c, image: i}]"), nil},
		{"a pod's target of no form", pod("volumes: [{name: v, " + iscsi + "a}}], containers: [{name: c, image: i}]"), []string{`spec.volumes[0].iscsi.iqn: Invalid value: "a": must be valid format starting with iqn, eui, or naa`}},
		{"a pod's target of a wrong form", pod("volumes: [{name: v, " + iscsi + "iqn.a}}], containers: [{name: c, image: i}]"), []string{`spec.volumes[0].iscsi.iqn: Invalid value: "iqn.a": must be valid format`}},
		{"a volume's target and its other end of no form", pv(iscsi + "a, initiatorName: b}"), []string{`spec.iscsi.iqn: Invalid value: "a": must be valid format`, `spec.iscsi.initiatorname: Invalid value: "b": must be valid format`}},
		{"a volume's secret without a name", pv(iscsi + "'iqn.2001-04.com.example:a', secretRef: {}}"), []string{"spec.iscsi.secretRef.name: Required value"}},
		{"a pod's secret without a name", pod("volumes: [{name: v, " + iscsi + "'iqn.2001-04.com.example:a', chapAuthSession: true, secretRef: {}}}], containers: [{name: c, image: i}]"), nil},
		{"a part of a disk that is none", pv("awsElasticBlockStore: {volumeID: a, partition: 256}"), []string{"spec.awsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive"}},
		{"two ways to a disk, and no unit", pv("fc: {targetWWNs: [a], wwids: [b]}"), []string{"spec.fc.targetWWNs: Invalid value", "spec.fc.lun: Required value: lun is required if targetWWNs is specified"}},
		{"a registry of two ports", pv("quobyte: {registry: 'a:1:2', volume: b}"), []string{`spec.quobyte.registry: Invalid value: "a:1:2": must be a host:port pair or multiple pairs separated by commas`}},
		{"a volume's secret without a namespace", pv("storageos: {volumeName: a, secretRef: {name: b}}"), []string{"spec.storageos.secretRef.namespace: Required value"}},
		{"endpoints in no namespace", pv("glusterfs: {endpoints: a, path: b, endpointsNamespace: ''}"), []string{`spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it must be a valid namespace name`}},
		{"an access mode that is none, beside one that is alone", claim("accessModes: [x, ReadWriteOncePod], resources: {requests: {storage: 1Gi}}"), []string{`spec.accessModes: Unsupported value: "x"`}},
		{"a claim of less than nothing", claim("accessModes: [ReadWriteOnce], resources: {requests: {storage: '-1'}}"), []string{`spec.resources[storage]: Invalid value: "-1": must be greater than zero`}},
		{"a limit for indexes that jobs have not", cron("backoffLimitPerIndex: -1"), []string{"spec.jobTemplate.spec.backoffLimitPerIndex: Invalid value: -1: must be greater than or equal to 0", "spec.jobTemplate.spec.backoffLimitPerIndex: Invalid value: -1: requires indexed completion mode"}},
		{"a ratio of numbers too large for thousandths", limits("1e10", "500m", "4e18"), []string{"ratio 4E is greater than max/min = 10000000000.000000"}},
		{"a ratio of thousandths", limits("10", "10m", "1001"), []string{"ratio 1001 is greater than max/min = 1000.000000"}},
		{"a ratio of more than can be counted", limits("9223372036854775808", "10m", "100M"), []string{"ratio 100M is greater than max/min = 0.000000"}},
		{"a ratio of less than nothing", limits("200k", "-1", "100M"), []string{"ratio 100M is greater than max/min = -200000.000000"}},
		{"a ratio of nothing", limits("1", "0", "100M"), nil},
		{"no address, and one that is none", service("type: NodePort, clusterIP: None, clusterIPs: [None, a]"), []string{"spec.clusterIPs: Invalid value: [\"None\",\"a\"]: 'None' must be the first and only value", `spec.clusterIPs[1]: Invalid value: "a": must be a valid IP address`}},
		{"an address beside what is none", service("type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, '1']"), []string{`spec.clusterIPs[1]: Invalid value: "1": must be a valid IP address`}},
		{"no address in the second place", service("type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, None]"), []string{`spec.clusterIPs[1]: Invalid value: "None": must be a valid IP address`}},
		{"a node port of a name elsewhere", service("type: ExternalName, externalName: a.example"), nil},
		{"a node port of a service in the cluster", service("type: ClusterIP"), []string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"a set that keeps all its revisions", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {revisionHistoryLimit: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestChangesAreToldWhatIsWrongWithThem(t *testing.T) {
	balancer := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nspec: {type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: None, ports: [{port: 80, protocol: TCP, targetPort: 80}], " + spec + "}\n"
	}
	claim := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, " + spec + "}\nstatus: {phase: Pending}\n"
	}
	csi := func(rest string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: a, volumeHandle: b, " + rest + "}}\n"
	}
	bound := func(requests string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {" + requests + "}}}\nstatus: {phase: Bound}\n"
	}
	node := "apiVersion: v1\nkind: Node\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: 10.0.0.1}]}\n"
	const immutable = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"the port of a health check", balancer("healthCheckNodePort: 30000"), balancer("healthCheckNodePort: 30001"), []string{"spec.healthCheckNodePort: Forbidden: field is immutable"}},
		{"a claim that waits gets attributes", claim("volumeMode: Filesystem"), claim("volumeMode: Filesystem, volumeAttributesClassName: a"), []string{immutable}},
		{"a claim that waits for its volume gets a class", claim("volumeName: a"), claim("volumeName: a, storageClassName: b"), nil},
		{"a claim of an annotated class gets another", strings.Replace(claim("volumeName: a"), "spec", "metadata: {annotations: {volume.beta.kubernetes.io/storage-class: a}}\nspec", 1), claim("volumeName: a, storageClassName: b"), []string{immutable}},
		{"a claim that is bound asks for something else", bound("storage: 1Gi"), bound("storage: 2Gi, cpu: 1"), []string{immutable}},
		{"a claim that is bound grows", bound("storage: 1Gi"), bound("storage: 2Gi"), nil},
		{"a volume gets a secret of the node", csi(""), csi("nodeExpandSecretRef: {name: a, namespace: b}"), []string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"}},
		{"a volume gets a secret of the controller", csi(""), csi("controllerExpandSecretRef: {name: a, namespace: b}"), nil},
		{"a node of one address twice", node, node, []string{"status.addresses[1]: Duplicate value"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, c.old)
			obj, _ := read(t, c.obj)
			expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestALoadBalancerKeepsNodePortsThatItNeedsNoMore(t *testing.T) {
	service := func(rest string) string {
		return "apiVersion: v1\nkind: Service\nspec: {" + rest + ", ports: [{port: 80, nodePort: 30000}]}\n"
	}
	for is, want := range map[string]int32{"type: LoadBalancer, allocateLoadBalancerNodePorts: false": 30000, "type: ClusterIP": 0} {
		for _, was := range []string{"type: NodePort", "type: LoadBalancer, allocateLoadBalancerNodePorts: true"} {
			old, s := read(t, service(was))
			obj, _ := read(t, service(is))
			s.PrepareUpdate(obj, old)
			if got := firstNodePort(obj); got != want {
				t.Errorf("from %s to %s: node port %d, want %d", was, is, got, want)
			}
		}
	}
}

func TestWhatNothingReadsIsNotKept(t *testing.T) {
	old, s := read(t, "apiVersion: v1\nkind: Node\n")
	for name, prepare := range map[string]func(obj runtime.Object){
		"create": s.PrepareCreate, "status": func(obj runtime.Object) { s.PrepareStatus(obj, old) },
	} {
		obj, _ := read(t, "apiVersion: v1\nkind: Node\nstatus: {config: {error: a}}\n")
		if prepare(obj); obj.(*corev1.Node).Status.Config != nil {
			t.Errorf("%s keeps the state of the node's configuration", name)
		}
	}
}

func TestAPodsStatusTellsNothingOfWhatItsVolumesAre(t *testing.T) {
	old, s := read(t, "apiVersion: v1\nkind: Pod\n")
	obj, _ := read(t, "apiVersion: v1\nkind: Pod\nstatus: {containerStatuses: [{name: c, volumeMounts: [{name: v, mountPath: /a, volumeStatus: {image: {imageRef: a}}}]}]}\n")
	s.PrepareStatus(obj, old)
	if mount := obj.(*corev1.Pod).Status.ContainerStatuses[0].VolumeMounts[0]; mount.VolumeStatus != nil || mount.Name != "v" {
		t.Errorf("got %+v", mount)
	}
}

func TestAPodHasTimeToEnd(t *testing.T) {
	old, s := read(t, "apiVersion: v1\nkind: Pod\nspec: {terminationGracePeriodSeconds: 30}\n")
	for name, prepare := range map[string]func(obj runtime.Object){
		"create": s.PrepareCreate, "update": func(obj runtime.Object) { s.PrepareUpdate(obj, old) },
	} {
		obj, _ := read(t, "apiVersion: v1\nkind: Pod\nspec: {terminationGracePeriodSeconds: -1}\n")
		if prepare(obj); *obj.(*corev1.Pod).Spec.TerminationGracePeriodSeconds != 1 {
			t.Errorf("%s: %d s", name, *obj.(*corev1.Pod).Spec.TerminationGracePeriodSeconds)
		}
	}
}
