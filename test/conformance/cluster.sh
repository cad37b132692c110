# cluster.sh is sourced by run.sh. cluster_start starts a cluster of two nodes below $state, with one
# server on node a or with three servers (servers.sh), and loads the images. The servers get the
# flags in server_settings. cluster_stop removes all of it. Each node is a machine of its own as far
# as the suite can see: it has a network, a process 1, mounts, a host name and a folder /var. No
# process listens outside of the two networks.
#
# $state/owner holds the process that the cluster belongs to, and $state/started the processes that
# it started. A later run removes clusters whose owner was killed.

suite='' launched='' # process ids
kubeconfig=''         # the administrator's, once the cluster runs
enter_a=() enter_b=() # run a command on node a or b
enter_net=()           # runs a command in the network of node a alone

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

# birth PID distinguishes a process from a later one with the same number.
birth() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# started ROLE PID records a process that must be ended.
started() { echo "$1 $2 $(birth "$2")" >>"$state/started"; }

# alive STATE ROLE prints the processes of the role that still run.
alive() {
  local role pid born
  [ -e "$1/started" ] || return 0
  while read -r role pid born; do
    if [[ $role = $2 ]] && [ "$(birth "$pid")" = "$born" ]; then echo "$pid"; fi
  done <"$1/started"
}

# launch NODE LOG COMMAND… starts a part of the cluster on a node. nsenter only waits for it, so the
# process to end later is nsenter's child. Its id is left in $launched.
launch() {
  local -n enter=enter_$1
  local log=$2 part=''
  shift 2
  "${enter[@]}" "$@" >"$log" 2>&1 &
  local waiting=$!
  for _ in $(seq 100); do
    part=$(cat "/proc/$waiting/task/$waiting/children" 2>/dev/null || true)
    [ -z "$part" ] || break
    sleep 0.05
  done
  launched=${part%% *}
  [ -z "$launched" ] || started part "$launched"
}

# mirror NODE starts a registry on the node's loopback in place of registry.k8s.io. No reachable
# registry has the suite's images, and some of its tests insist on pulling. Port 5000 belongs to
# the suite's own registry.
mirror() {
  local hosts=$state/$1/registries/registry.k8s.io
  mkdir -p "$hosts"
  printf '[host."http://127.0.0.1:5999"]\n  capabilities = ["pull", "resolve"]\n' >"$hosts/hosts.toml"
  launch "$1" "$cache/registry-$1.log" env TMPDIR="$state" "$knarr" image registry --listen 127.0.0.1:5999
  wait_for 10 "registry" grep -q '^ready' "$cache/registry-$1.log"
}

# fill NODE loads the suite's images into a node; those that tests pull go into its registry too.
fill() {
  local archive image
  local -n enter=enter_$1
  for archive in "$images"/*.tar; do
    "${enter[@]}" "$knarr" image load --data-dir "$state/$1" "$archive" >/dev/null
  done
  for image in e2e-test-images/kitten:1.8 pause:3.10.2 ${csi:+sig-storage/csi-snapshotter:v8.5.0}; do
    "${enter[@]}" "$knarr" image push --data-dir "$state/$1" "registry.k8s.io/$image" "127.0.0.1:5999/$image"
  done
}

# space NODE NAME creates the namespaces of a node; $pid is the node's process 1. It adopts and
# reaps what loses its parent; when it ends, the kernel ends the rest.
space() {
  local var=$state/$1-var
  mkdir -p "$var/upper" "$var/work" "$var/lib"
  unshare --net --uts --mount --pid --fork --mount-proc bash -c '
    mount --make-rshared / # pods may share their mounts with the node, as on a machine
    hostname "$2"
    ip link set lo up
    # Files below /var are the node'"'"'s own. /var/lib is empty, so that the kubelet'"'"'s folder is free.
    mount -t overlay overlay -o "lowerdir=/var,upperdir=$1/upper,workdir=$1/work" /var
    mount --bind "$1/lib" /var/lib
    : >"$1/made"
    trap "" INT HUP
    while :; do sleep 3600 & wait; done' space "$var" "$2" &
  local outer=$!
  wait_for 10 "the namespaces of $2" test -e "$var/made"
  pid=$(cut -d' ' -f1 "/proc/$outer/task/$outer/children")
  started "space-$1" "$pid"
}

# A nearly full disk must not cause evictions or the removal of images. Some tests look for the
# kubelet's folder, or for a process of this name, on a node.
node_settings=(--eviction-hard 'memory.available<100Mi' --image-gc-high-threshold 100 --kubelet-dir /var/lib/kubelet)

# node_start a|b up|node FLAGS… starts a node, alone or with a server, and loads the images.
node_start() {
  local node=$1 number=1
  [ "$node" = a ] || number=2
  mirror "$node"
  launch "$node" "$cache/knarr-node-$number.log" bash -c 'exec -a kubelet "$@"' launch "$knarr" "$2" --data-dir "$state/$node" --cgroup-root "$cgroup-$node" \
    --node-name "node-$number" --advertise-address "192.168.77.$number" "${node_settings[@]}" "${@:3}"
  wait_for 60 "knarr $2" grep -q '^ready' "$cache/knarr-node-$number.log"
  fill "$node"
}

cluster_start() {
  echo "$$ $(birth $$)" >"$state/owner"
  rm -f "$cache"/knarr*.log "$cache"/registry*.log "$cache"/{proxy,killer}.log
  local pid
  space a node-1
  enter_a=(nsenter --target "$pid" --net --uts --mount --pid --)
  enter_net=(nsenter --target "$pid" --net --)
  space b node-2
  enter_b=(nsenter --target "$pid" --net --uts --mount --pid --)
  # The link between the two nodes.
  "${enter_net[@]}" ip link add cable type veth peer name cable netns "$pid"
  "${enter_a[@]}" ip addr add 192.168.77.1/24 dev cable
  "${enter_a[@]}" ip link set cable up
  "${enter_b[@]}" ip addr add 192.168.77.2/24 dev cable
  "${enter_b[@]}" ip link set cable up
  "${enter_a[@]}" ip route add default via 192.168.77.2

  local join
  if [ "${SERVERS:-1}" = 3 ]; then
    servers_start
    join=$(servers_join)
    node_start a node $join
  else
    node_start a up "${server_settings[@]}"
    kubeconfig=$state/a/kubeconfig
    "${enter_a[@]}" "$knarr" token create --data-dir "$state/a" --advertise-address 192.168.77.1 >"$state/token" 2>/dev/null
    join="--join https://192.168.77.1:6443 --token-file $state/token"
  fi
  [ "${NODES:-2}" = 1 ] || node_start b node $join
}

# cluster_remove STATE CGROUP: stops and purges a cluster, or its remains. Its namespaces may be
# gone already.
cluster_remove() {
  local node pid status=0
  for pid in $(alive "$1" killer); do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in $(alive "$1" suite); do kill -KILL -- "-$pid" 2>/dev/null || true; done
  for pid in $(alive "$1" part); do kill -TERM "$pid" 2>/dev/null || true; done
  for _ in $(seq 300); do
    [ -n "$(alive "$1" part)" ] || break
    sleep 0.1
  done
  for node in a b s1 s2 s3; do
    [ -d "$1/$node" ] || continue
    local space=$node
    case $node in s2) space=b ;; s*) space=a ;; esac
    pid=$(alive "$1" "space-$space")
    # Outside of its namespace a purge would search this machine for links and rules. A new
    # namespace has none.
    local enter=(unshare --net)
    [ -z "$pid" ] || enter=(nsenter --target "$pid" --net --uts --mount --pid --)
    "${enter[@]}" "$knarr" purge --yes --data-dir "$1/$node" --cgroup-root "$2-$node" >>"$cache/purge.log" 2>&1 || { cat "$cache/purge.log" >&2; status=1; }
  done
  for pid in $(alive "$1" '*'); do
    kill -KILL "$pid" 2>/dev/null || true
  done
  for _ in $(seq 100); do
    [ -n "$(alive "$1" '*')" ] || break
    sleep 0.1
  done
  rm -rf "$1"
  local left
  left=$(grep -F "$1/" /proc/self/mountinfo | head -n 5; find /sys/fs/cgroup -maxdepth 2 -path "*$2-*" | head -n 5
    grep -la "[/]${1#/}/" /proc/[0-9]*/cmdline 2>/dev/null | head -n 5)
  [ -z "$left" ] || { echo "cluster.sh: left behind: $left" >&2; status=1; }
  return $status
}

# stop_suite kills the suite: at the first signal it would still clean up every test's namespace.
stop_suite() {
  for _ in 1 2 3; do
    kill -TERM -- "-$suite" 2>/dev/null || break
    sleep 0.5
  done
  kill -KILL -- "-$suite" 2>/dev/null || true
  wait "$suite" 2>/dev/null || true
}

cluster_stop() {
  local status=$?
  trap - EXIT INT TERM HUP
  [ -z "$suite" ] || stop_suite
  if [ "${KEEP:-}" = 1 ] && [ -e "$kubeconfig" ]; then
    rm -f "$state/owner"
    echo "the cluster stays: ${enter_net[*]} env KUBECONFIG=$kubeconfig $knarr kubectl get nodes; state in $state"
    exit $status
  fi
  : >"$cache/purge.log"
  cluster_remove "$state" "$cgroup" || [ $status -ne 0 ] || status=1
  exit $status
}

# cluster_sweep removes clusters of runs that were killed before they could do so.
cluster_sweep() {
  local old owner born
  for old in "${TMPDIR:-/tmp}"/kc-*/; do
    old=${old%/}
    [ -e "$old/owner" ] || continue
    read -r owner born <"$old/owner"
    [ "$(birth "$owner")" != "$born" ] || continue
    echo "cluster.sh: removing $old, left by a run that was killed"
    cluster_remove "$old" "/knarr-conformance-$owner" || true
  done
}
