# cluster.sh: sourced by run.sh. cluster_start brings up a cluster of two nodes below $state, each in a network namespace
# of its own, and loads the images; cluster_stop removes all of it. Nothing binds outside of the two namespaces.
#
# $state/owner holds the process that the cluster belongs to; a later run removes clusters whose owner was killed.

cluster_pids=()
space='' space2='' suite=''

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

# inside runs a command in the first node's network namespace, inside2 in the second's.
inside() { nsenter --net="/proc/$space/ns/net" -- "$@"; }
inside2() { nsenter --net="/proc/$space2/ns/net" -- "$@"; }

# birth PID tells one process from a later one of the same number.
birth() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# mirror NODE INSIDE: a registry on the node's loopback that stands for registry.k8s.io. No registry holds the suite's images
# here, and some of its tests insist on pulling.
mirror() {
  local hosts=$state/$1/registries/registry.k8s.io
  mkdir -p "$hosts"
  printf '[host."http://127.0.0.1:5000"]\n  capabilities = ["pull", "resolve"]\n' >"$hosts/hosts.toml"
  TMPDIR=$state "$2" "$knarr" image registry --listen 127.0.0.1:5000 >"$cache/registry-$1.log" 2>&1 &
  cluster_pids+=($!)
  wait_for 10 "registry" grep -q '^ready' "$cache/registry-$1.log"
}

# fill NODE INSIDE: the suite's images for a node; those that tests pull, into its registry too.
fill() {
  local archive image
  for archive in "$images"/*.tar; do
    "$knarr" image load --data-dir "$state/$1" "$archive" >/dev/null
  done
  for image in e2e-test-images/kitten:1.8 pause:3.10.2; do
    "$2" "$knarr" image push --data-dir "$state/$1" "registry.k8s.io/$image" "127.0.0.1:5000/$image"
  done
}

cluster_start() {
  echo "$$ $(birth $$)" >"$state/owner"
  rm -f "$cache"/knarr*.log "$cache"/registry*.log
  unshare --net sleep infinity &
  space=$!
  unshare --net sleep infinity &
  space2=$!
  echo "$space $(birth "$space") $space2 $(birth "$space2")" >"$state/spaces"
  wait_for 5 "network namespaces" test -e "/proc/$space2/ns/net"
  sleep 0.2
  # The two nodes' cable.
  inside ip link set lo up
  inside ip link add cable type veth peer name cable netns "$space2"
  inside ip addr add 192.168.77.1/24 dev cable
  inside ip link set cable up
  inside2 ip link set lo up
  inside2 ip addr add 192.168.77.2/24 dev cable
  inside2 ip link set cable up
  inside ip route add default via 192.168.77.2

  # One test waits until a list's continue token has expired; with the default of five minutes it takes nine.
  mirror a inside
  inside "$knarr" up --data-dir "$state/a" --cgroup-root "$cgroup-a" --node-name node-1 --advertise-address 192.168.77.1 \
    --compaction-interval "${COMPACTION:-30s}" >"$cache/knarr.log" 2>&1 &
  cluster_pids+=($!)
  wait_for 60 "knarr up" grep -q '^ready' "$cache/knarr.log"
  fill a inside
  [ "${NODES:-2}" = 2 ] || return 0
  mirror b inside2
  local token
  token=$(inside "$knarr" token create --data-dir "$state/a" --advertise-address 192.168.77.1 2>/dev/null)
  inside2 "$knarr" node --data-dir "$state/b" --cgroup-root "$cgroup-b" --node-name node-2 --advertise-address 192.168.77.2 \
    --join https://192.168.77.1:6443 --token "$token" >"$cache/knarr-2.log" 2>&1 &
  cluster_pids+=($!)
  wait_for 60 "knarr node" grep -q '^ready' "$cache/knarr-2.log"
  fill b inside2
}

# cluster_remove STATE CGROUP SPACE SPACE2: purges what a cluster left. The namespaces may be gone already.
cluster_remove() {
  local node enter status=0
  for node in a b; do
    [ -d "$1/$node" ] || continue
    enter=()
    local holder=$3
    [ "$node" = a ] || holder=$4
    [ ! -e "/proc/${holder:-none}/ns/net" ] || enter=(nsenter --net="/proc/$holder/ns/net" --)
    # Outside of its namespace a purge would search this machine for links and rules: a fresh one has none.
    [ ${#enter[@]} -gt 0 ] || enter=(unshare --net)
    "${enter[@]}" "$knarr" purge --yes --data-dir "$1/$node" --cgroup-root "$2-$node" >>"$cache/purge.log" 2>&1 || { cat "$cache/purge.log" >&2; status=1; }
  done
  [ -z "$3$4" ] || kill $3 $4 2>/dev/null || true
  rm -rf "$1"
  local left
  left=$(grep -F "$1/" /proc/self/mountinfo | head -n 5; find /sys/fs/cgroup -maxdepth 2 -path "*$2-*" | head -n 5
    grep -la "[/]${1#/}/" /proc/[0-9]*/cmdline 2>/dev/null | head -n 5)
  [ -z "$left" ] || { echo "cluster.sh: left behind: $left" >&2; status=1; }
  return $status
}

# stop_suite ends the suite where it is: at the first signal it would still clean up every test's namespace.
stop_suite() {
  for _ in 1 2 3; do
    kill -TERM -- "-$suite" 2>/dev/null || break
    sleep 0.5
  done
  kill -KILL -- "-$suite" 2>/dev/null || true
  wait "$suite" 2>/dev/null || true
}

cluster_stop() {
  local status=$? pid
  trap - EXIT INT TERM HUP
  [ -z "$suite" ] || stop_suite
  if [ "${KEEP:-}" = 1 ] && [ -n "$space" ]; then
    rm -f "$state/owner"
    echo "the cluster stays: nsenter --net=/proc/$space/ns/net env KUBECONFIG=$state/a/kubeconfig $knarr kubectl get nodes; state in $state"
    exit $status
  fi
  for pid in "${cluster_pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${cluster_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  : >"$cache/purge.log"
  cluster_remove "$state" "$cgroup" "$space" "$space2" || [ $status -ne 0 ] || status=1
  exit $status
}

# cluster_sweep removes clusters of runs that were killed before they could.
cluster_sweep() {
  local old owner born s1 b1 s2 b2
  for old in "${TMPDIR:-/tmp}"/kc-*/; do
    old=${old%/}
    [ -e "$old/owner" ] || continue
    read -r owner born <"$old/owner"
    [ "$(birth "$owner")" != "$born" ] || continue
    echo "cluster.sh: removing $old, left by a run that was killed"
    s1='' b1='' s2='' b2=''
    [ ! -e "$old/spaces" ] || read -r s1 b1 s2 b2 <"$old/spaces"
    [ -n "$b1" ] && [ "$(birth "$s1")" = "$b1" ] || s1=''
    [ -n "$b2" ] && [ "$(birth "$s2")" = "$b2" ] || s2=''
    cluster_remove "$old" "/knarr-conformance-$owner" "$s1" "$s2" || true
  done
}
