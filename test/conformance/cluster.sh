# cluster.sh: sourced by run.sh. cluster_start brings up a cluster of two nodes below $state, the second one in a
# network namespace of its own, and loads the images; cluster_stop removes all of it.

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

cluster_start() {
  cluster_ports
  "$knarr" up --data-dir "$state/data" --cgroup-root "/knarr-conformance-$$" --node-name node-1 \
    --listen "0.0.0.0:$api_port" --kubelet-listen "0.0.0.0:$kubelet_port" \
    --pod-cidr "${CONFORMANCE_POD_CIDR:-10.44.0.0/16}" --service-cidr "${CONFORMANCE_SERVICE_CIDR:-10.45.0.0/16}" \
    --compaction-interval 1m --registry-hosts "$state/hosts" >"$cache/knarr.log" 2>&1 &
  cluster_pids+=($!)
  wait_for 60 "knarr up" grep -q '^ready' "$cache/knarr.log"
  local archive
  for archive in "$images"/*.tar; do
    "$knarr" image load --data-dir "$state/data" "$archive" >/dev/null
  done
}

# cluster_ports takes ports that are free now, so that another cluster on this machine does not matter.
cluster_ports() {
  api_port=$(free_port 16443)
  kubelet_port=$(free_port 20250)
}

free_port() {
  local p
  for p in $(seq "$1" $(($1 + 500))); do
    (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
  done
  return 1
}

cluster_stop() {
  local status=$? pid
  trap - EXIT
  [ "${KEEP:-}" = 1 ] && { echo "the cluster stays: KUBECONFIG=$KUBECONFIG, state in $state"; exit $status; }
  for pid in "${cluster_pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${cluster_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  "$knarr" purge --yes --data-dir "$state/data" --cgroup-root "/knarr-conformance-$$" >"$cache/purge.log" 2>&1 || cat "$cache/purge.log" >&2
  rm -rf "$state"
  exit $status
}
