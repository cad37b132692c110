#!/usr/bin/env bash
# node.sh: runs upstream's node suite (k8s.io/kubernetes/test/e2e_node) with knarr's node agent in
# place of the kubelet, and knarr's server in place of the suite's own. The suite stops the agent
# and starts it with other settings where a test needs that.
#
#   FOCUS=regexp SKIP=regexp node.sh  a part of the suite
#   LABELS=filter node.sh             tests by label (default: 'NodeConformance && !Serial')
#   PROCS=n                           tests at a time (default: 4; 1 with Serial tests)
#   KEEP=1                            leaves the cluster running
#
# Each test that fails must stand in node-failures.txt, and each one that stands there and runs must
# fail. It writes .cache/conformance/{node.log,node.xml,knarr*.log} and prints one line
# "e2e_node: N passed, M failed as expected, K unexpected".
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/conformance here=$PWD/test/conformance
bin=${CONFORMANCE_BIN:-$cache/bin}
images=${CONFORMANCE_IMAGES:-$cache/images}
knarr=$PWD/bin/knarr
labels=${LABELS-'NodeConformance && !Serial'}
[ "$(id -u)" = 0 ] || { echo "node.sh: needs root" >&2; exit 1; }
hack/prerequisites.sh conformance
mkdir -p "$cache"
echo "progress: compiling upstream's node suite"
"$here/build.sh" "$bin"
"$here/build.sh" "$bin" node
echo "progress: making the suite's images"
"$here/images/images.sh" "$images" "$bin" "$knarr"

state=$(mktemp -d "${TMPDIR:-/tmp}/kc-XXXXXX")
cgroup=/knarr-conformance-$$
source test/conformance/cluster.sh
cluster_sweep
# finish stops the agent, which cluster_stop does not know, and removes the cluster.
finish() {
  local status=$?
  set +e
  [ -n "${KEEP:-}" ] || [ ! -e "$state/suite/pid" ] || "${enter_a[@]}" env SUITE="$state/suite" "$state/suite/bin/systemctl" stop
  (exit $status)
  cluster_stop
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

echo "progress: starting a server and a node"
echo "$$ $(birth $$)" >"$state/owner"
rm -f "$cache"/knarr*.log "$cache"/registry*.log "$cache"/node.*
space a node-1
enter_a=(nsenter --target "$pid" --net --uts --mount --pid --)
enter_net=(nsenter --target "$pid" --net --)
"${enter_a[@]}" ip link add cable type veth peer name cable-end
"${enter_a[@]}" ip addr add 192.168.77.1/24 dev cable
"${enter_a[@]}" ip link set cable up
"${enter_a[@]}" ip link set cable-end up
"${enter_a[@]}" ip route add default via 192.168.77.2
launch a "$cache/knarr.log" "$knarr" server --data-dir "$state/server" --advertise-address 192.168.77.1
wait_for 60 "knarr server" grep -q '^ready' "$cache/knarr.log"
token=$("${enter_a[@]}" "$knarr" token create --data-dir "$state/server" --advertise-address 192.168.77.1 2>/dev/null)

# The suite finds its programs in its own folder, where it also writes the agent's settings.
suite_dir=$state/suite
mkdir -p "$suite_dir/bin" "$suite_dir/pods" "$suite_dir/tmp"
cp "$bin/e2e_node.test" "$suite_dir/"
cat >"$suite_dir/kubelet-config" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: $suite_dir/pods
healthzPort: 10248
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
YAML
echo 'os: Linux' >"$suite_dir/system-spec.yaml" # the machine's kernel is not what is judged
cp "$here/node-systemctl.sh" "$suite_dir/bin/systemctl"
printf '#!/bin/sh\nexec "$@"\n' >"$suite_dir/bin/sudo"
chmod +x "$suite_dir"/bin/*
mirror a
cat >"$suite_dir/agent" <<SH
exec "$knarr" node --data-dir "$state/a" --run-dir "$state/run" --node-name node-1 --advertise-address 192.168.77.1 --cgroup-root "$cgroup-a" \
  --join https://192.168.77.1:6443 --token "$token" --kubelet-config "$suite_dir/kubelet-config" >>"$cache/knarr-node.log" 2>&1
SH
"${enter_a[@]}" env SUITE="$suite_dir" "$suite_dir/bin/systemctl" start kubelet-knarr
wait_for 60 "knarr node" grep -q '^ready' "$cache/knarr-node.log"
fill a

kubectl() { "${enter_a[@]}" "$knarr" kubectl --kubeconfig "$state/server/kubeconfig" "$@"; }
kubectl create serviceaccount suite >/dev/null
kubectl create clusterrolebinding suite --clusterrole cluster-admin --serviceaccount default:suite >/dev/null
bearer=$(kubectl create token suite --duration 6h)
arguments=(
  --start-services=false --prepull-images=false --host=https://192.168.77.1:6443 --bearer-token="$bearer" --node-name=node-1
  --container-runtime-endpoint="unix://$state/run/containerd.sock" --system-spec-file="$suite_dir/system-spec.yaml" --kubectl-path="$bin/kubectl"
)
echo "progress: running the suite"
status=0
TMPDIR=$suite_dir/tmp setsid "${enter_a[@]}" env SUITE="$suite_dir" PATH="$suite_dir/bin:$PATH" "$bin/ginkgo" --procs="${PROCS:-4}" --no-color --timeout="${TIMEOUT:-50m}" \
  --label-filter="$labels" ${FOCUS:+--focus="$FOCUS"} ${SKIP:+--skip="$SKIP"} --junit-report=node.xml --output-dir="$cache" \
  "$suite_dir/e2e_node.test" -- "${arguments[@]}" >"$cache/node.log" 2>&1 &
suite=$!
started suite "$suite"
wait "$suite" || status=$?
suite=''
[ -e "$cache/node.xml" ] || { tail -n 30 "$cache/node.log" >&2; exit 1; }
"$here/outcome.sh" e2e_node "$cache/node.xml" "$here/node-failures.txt"
