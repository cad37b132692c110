#!/usr/bin/env bash
# run.sh: upstream's control plane, made by kubeadm, is taken over by `knarr adopt kubeadm`, served
# by `knarr server`, and given back by `knarr release kubeadm`. It builds upstream's binaries at
# first. Needs root. Everything runs in a network namespace and in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
if [ "${1:-}" != inside ]; then
  bin=$PWD/.cache/compare/bin
  mkdir -p "$bin"
  version=$(go list -C test/upstream -m -f '{{.Version}}' k8s.io/kubernetes)
  export CGO_ENABLED=0
  for name in kubeadm kube-apiserver kube-controller-manager; do
    [ -x "$bin/$name" ] || go build -C test/upstream -trimpath -buildvcs=false \
      -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$bin/" "k8s.io/kubernetes/cmd/$name"
  done
  [ -x "$bin/etcd" ] || go build -C test/upstream -trimpath -buildvcs=false -ldflags '-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
  # The processes end with the PID namespace, however the script ends.
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" inside "$version"
fi
version=$2 bin=$PWD/.cache/compare/bin knarr=$PWD/bin/knarr
pids=()
work=$(mktemp -d "${TMPDIR:-/tmp}/knarr-adopt-XXXXXX")
trap 'end; rm -rf --one-file-system "$work"' EXIT
trap 'exit 143' TERM INT HUP
# end stops the processes, the last one first: an API server without its etcd ends late.
end() {
  local i pid
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    pid=${pids[i]}
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  pids=()
}
root=$work/root data=$work/knarr address=192.0.2.10
admin=$root/etc/kubernetes/admin.conf
k() { timeout 60 "$knarr" kubectl --kubeconfig "$admin" "$@"; }
step() { echo "progress: $*"; }
fail() {
  echo "FAILED: $*" >&2
  tail -n 5 "$work"/*.log | cut -c1-600 >&2 || true
  exit 1
}
ip link set lo up
ip link add up0 type veth peer name up1
ip address add $address/24 dev up0
ip link set up0 up
ip link set up1 up
ip route add default dev up0

# ready waits for the API server. The limit is one of failure, not of speed.
ready() {
  for _ in $(seq 600); do
    k get --raw /readyz >/dev/null 2>&1 && return 0
    kill -0 "${pids[@]}" 2>/dev/null || fail "a process ended by itself"
    sleep 0.2
  done
  fail "the API server is not ready"
}
# until_true COMMAND...: waits for a condition.
until_true() {
  for _ in $(seq 600); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  fail "never true: $*"
}
# pod NAME: runs a static pod's process with the command of its manifest, at its paths.
pod() {
  local line
  mapfile -t line < <(sed -n 's/^    - \(--.*\)$/\1/p' "$root/etc/kubernetes/kubeadm-manifests/$1.yaml")
  chroot "$root" "/bin/$1" "${line[@]}" >>"$work/$1.log" 2>&1 &
  pids+=($!)
}
upstream() {
  pod etcd
  pod kube-apiserver
  ready
  pod kube-controller-manager
}

step "kubeadm makes certificates, kubeconfigs and manifests"
mkdir -p "$root"/{bin,etc,tmp,dev,var/lib/etcd}
mknod -m 666 "$root/dev/null" c 1 3
for name in kube-apiserver kube-controller-manager etcd; do cp "$bin/$name" "$root/bin/"; done
echo "127.0.0.1 localhost cp-1" >"$root/etc/hosts"
cat >"$root/conf.yaml" <<CONF
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {name: cp-1, criSocket: "unix:///nowhere.sock"}
localAPIEndpoint: {advertiseAddress: $address}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $version
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}
apiServer:
  extraArgs: [{name: encryption-provider-config, value: /etc/kubernetes/enc/keys.yaml}]
  extraVolumes: [{name: enc, hostPath: /etc/kubernetes/enc, mountPath: /etc/kubernetes/enc, readOnly: true}]
CONF
mkdir -p "$root/etc/kubernetes/enc"
cat >"$root/etc/kubernetes/enc/keys.yaml" <<CONF
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{aescbc: {keys: [{name: one, secret: $(head -c 32 /dev/urandom | base64)}]}}, {identity: {}}]}]
CONF
for phase in "certs all" "kubeconfig all" "control-plane all" "etcd local"; do
  # shellcheck disable=SC2086
  "$bin/kubeadm" init phase $phase --rootfs "$root" --config /conf.yaml >>"$work/kubeadm.log" 2>&1 || fail "kubeadm init phase $phase"
done
"$knarr" adopt kubeadm --from "$root" --data-dir "$data" >"$work/refused.log" 2>&1 && fail "manifests in place are not refused"
grep -q "Park them" "$work/refused.log" || fail "the refusal does not name the remedy"
mkdir "$root/etc/kubernetes/kubeadm-manifests"
mv "$root"/etc/kubernetes/manifests/*.yaml "$root/etc/kubernetes/kubeadm-manifests/"

step "upstream serves; objects are created"
upstream
k create clusterrolebinding kubeadm:cluster-admins --clusterrole=cluster-admin --group=kubeadm:cluster-admins --kubeconfig "$root/etc/kubernetes/super-admin.conf"
until_true k -n default get serviceaccount default
k create deployment web --image=registry.example/web:1 --replicas=2
k create secret generic kept --from-literal=word=hidden-word
k create serviceaccount robot
k create clusterrolebinding robot --clusterrole=view --serviceaccount=default:robot
token=$(k create token robot --duration=1h)
k apply -f - <<OBJECTS
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.sea.example.com}
spec:
  group: sea.example.com
  scope: Namespaced
  names: {kind: Ship, plural: ships, singular: ship}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: harbour, namespace: default}
spec: {holderIdentity: pilot}
---
apiVersion: v1
kind: Node
metadata: {name: cp-1}
OBJECTS
until_true k wait --for=condition=Established crd/ships.sea.example.com --timeout=30s
until_true k get ships
echo '{apiVersion: sea.example.com/v1, kind: Ship, metadata: {name: knarr}, load: {wool: 3}}' | k create -f -
until_true test "$(k get replicasets -o name | wc -l)" = 1
until_true sh -c "[ \$('$knarr' kubectl --kubeconfig '$admin' get pods -o name | wc -l) = 2 ]"
"$knarr" adopt kubeadm --from "$root" --data-dir "$data" >"$work/refused.log" 2>&1 && fail "a running etcd is not refused"
grep -q "etcd runs on it" "$work/refused.log" || fail "a running etcd is not named"
grep -q "API server answers" "$work/refused.log" || fail "a running API server is not named"
# The controllers stop first, so that the newest revision is known.
kill "${pids[2]}" && wait "${pids[2]}" 2>/dev/null || true
pids=("${pids[@]:0:2}")
k create configmap last
revision=$(k get configmap last -o 'jsonpath={.metadata.resourceVersion}')
shown() { k get secrets,deployments,replicasets,configmaps,serviceaccounts,crd,ships,clusterroles -A -o 'jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}' | sort; }
shown >"$work/before.txt"
end

step "knarr takes over"
"$knarr" adopt kubeadm --from "$root" --data-dir "$data" --dry-run | tee "$work/plan.txt" | tail -n 4
"$knarr" adopt kubeadm --from "$root" --data-dir "$data"
[ ! -e "$data.adopting" ] || fail "the work folder is left"
server() {
  "$knarr" server --config "$data/adopted.yaml" --run-dir "$work/run" >>"$work/knarr.log" 2>&1 &
  pids+=($!)
  ready
}
server
shown >"$work/after.txt"
# knarr's own policy and definitions may be new; no object may be missing or have an older version.
while read -r name uid version; do
  now=$(grep "^$name $uid " "$work/after.txt" | cut -d' ' -f3) || fail "$name is gone"
  [ "$now" -ge "$version" ] || fail "$name went back from $version to $now"
done <"$work/before.txt"
[ "$(k get configmap last -o 'jsonpath={.metadata.resourceVersion}')" = "$revision" ] || fail "the resourceVersion changed"
[ "$(k get secret kept -o 'jsonpath={.data.word}' | base64 -d)" = hidden-word ] || fail "the encrypted Secret cannot be read"
[ "$(k get ship knarr -o 'jsonpath={.load.wool}')" = 3 ] || fail "the custom resource"
[ "$(k get lease harbour -o 'jsonpath={.spec.holderIdentity}')" = pilot ] || fail "the Lease"
timeout 60 "$knarr" kubectl --kubeconfig /dev/null --server "https://$address:6443" --certificate-authority "$root/etc/kubernetes/pki/ca.crt" --token "$token" get deployment web >/dev/null ||
  fail "the old token of the service account"
timeout 60 "$knarr" kubectl --kubeconfig "$root/etc/kubernetes/kubelet.conf" get node cp-1 >/dev/null || fail "the kubelet's certificate"
timeout 60 "$knarr" kubectl --kubeconfig "$root/etc/kubernetes/controller-manager.conf" get pods >/dev/null || fail "the controller manager's certificate"
step "a watcher lists again, as after each restart of an API server, and goes on"
watch() { timeout 60 "$knarr" kubectl --kubeconfig "$admin" get --raw "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=$1&timeoutSeconds=5" || true; }
watch "$revision" >"$work/watch.txt" 2>&1
grep -q '"code":410' "$work/watch.txt" || [ ! -s "$work/watch.txt" ] || fail "the old watch: $(head -c 500 "$work/watch.txt")"
listed=$(k get --raw '/api/v1/namespaces/default/configmaps' | sed 's/.*"metadata":{"resourceVersion":"\([0-9]*\)"},"items".*/\1/')
[ "$listed" -ge "$revision" ] || fail "the list's resourceVersion $listed went back"
k create configmap under-knarr --from-literal=a=b
watch "$listed" >"$work/watch.txt" 2>&1
grep -q '"under-knarr"' "$work/watch.txt" || fail "the watch missed a change: $(head -c 500 "$work/watch.txt")"
k scale deployment web --replicas=3
until_true sh -c "[ \$('$knarr' kubectl --kubeconfig '$admin' get pods -o name | wc -l) = 3 ]"
k delete configmap last
"$knarr" release kubeadm --to "$root" --data-dir "$data" >"$work/refused.log" 2>&1 && fail "a running server is not refused"
end

step "knarr gives back"
"$knarr" release kubeadm --to "$root" --data-dir "$data" | tee "$work/released.txt"
upstream
[ "$(k get configmap under-knarr -o 'jsonpath={.data.a}')" = b ] || fail "a change under knarr is lost"
k get configmap last >/dev/null 2>&1 && fail "an object deleted under knarr is back"
[ "$(k get secret kept -o 'jsonpath={.data.word}' | base64 -d)" = hidden-word ] || fail "upstream cannot read the Secret"
[ "$(k get ship knarr -o 'jsonpath={.load.wool}')" = 3 ] || fail "the custom resource after the way back"
now=$(k create configmap again -o 'jsonpath={.metadata.resourceVersion}')
[ "$now" -gt "$revision" ] || fail "the revision went back to $now"
k scale deployment web --replicas=4
until_true sh -c "[ \$('$knarr' kubectl --kubeconfig '$admin' get pods -o name | wc -l) = 4 ]"
end
echo "adopt-kubeadm: passed: $(wc -l <"$work/before.txt") objects, revision $revision to $now"
