# cluster.sh: sourced by run.sh. cluster_start brings up a cluster of two nodes below $state, each in a network namespace
# of its own, and loads the images; cluster_stop removes all of it. Nothing binds outside of the two namespaces.

cluster_pids=()

# wait_for SECONDS WHAT COMMAND…
wait_for() {
  local seconds=$1 what=$2
  shift 2
  for _ in $(seq $((seconds * 5))); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  echo "cluster.sh: $what: not after $seconds s" >&2
  tail -n 40 "$cache"/knarr*.log >&2
  return 1
}

# inside runs a command in the first node's network namespace.
inside() { nsenter --net="/proc/$space/ns/net" -- "$@"; }

cgroup=/knarr-conformance-$$

cluster_start() {
  unshare --net sleep infinity &
  space=$!
  unshare --net sleep infinity &
  space2=$!
  wait_for 5 "network namespaces" test -e "/proc/$space2/ns/net"
  sleep 0.2
  # The two nodes' cable.
  inside ip link set lo up
  inside ip link add cable type veth peer name cable netns "$space2"
  inside ip addr add 192.168.77.1/24 dev cable
  inside ip link set cable up
  nsenter --net="/proc/$space2/ns/net" ip link set lo up
  nsenter --net="/proc/$space2/ns/net" ip addr add 192.168.77.2/24 dev cable
  nsenter --net="/proc/$space2/ns/net" ip link set cable up
  inside ip route add default via 192.168.77.2

  inside "$knarr" up --data-dir "$state/a" --cgroup-root "$cgroup-a" --node-name node-1 --advertise-address 192.168.77.1 \
    --compaction-interval "${COMPACTION:-5m}" >"$cache/knarr.log" 2>&1 &
  cluster_pids+=($!)
  wait_for 60 "knarr up" grep -q '^ready' "$cache/knarr.log"
  if [ "${NODES:-2}" = 2 ]; then
    local token
    token=$(inside "$knarr" token create --data-dir "$state/a" --advertise-address 192.168.77.1 2>/dev/null)
    nsenter --net="/proc/$space2/ns/net" -- "$knarr" node --data-dir "$state/b" --cgroup-root "$cgroup-b" --node-name node-2 --advertise-address 192.168.77.2 \
      --join https://192.168.77.1:6443 --token "$token" >"$cache/knarr-2.log" 2>&1 &
    cluster_pids+=($!)
    wait_for 60 "knarr node" grep -q '^ready' "$cache/knarr-2.log"
  fi
  local archive node
  for node in a b; do
    [ -d "$state/$node" ] || continue
    for archive in "$images"/*.tar; do
      "$knarr" image load --data-dir "$state/$node" "$archive" >/dev/null
    done
  done
}

cluster_stop() {
  local status=$? pid
  trap - EXIT
  if [ "${KEEP:-}" = 1 ]; then
    echo "the cluster stays: nsenter --net=/proc/$space/ns/net env KUBECONFIG=$state/a/kubeconfig $knarr kubectl get nodes; state in $state"
    exit $status
  fi
  for pid in "${cluster_pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${cluster_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  inside "$knarr" purge --yes --data-dir "$state/a" --cgroup-root "$cgroup-a" >"$cache/purge.log" 2>&1 || cat "$cache/purge.log" >&2
  [ ! -d "$state/b" ] || nsenter --net="/proc/$space2/ns/net" -- "$knarr" purge --yes --data-dir "$state/b" --cgroup-root "$cgroup-b" >>"$cache/purge.log" 2>&1 || cat "$cache/purge.log" >&2
  kill "$space" "$space2" 2>/dev/null || true
  rm -rf "$state"
  exit $status
}
