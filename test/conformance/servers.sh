# servers.sh is sourced by run.sh after cluster.sh, and has the clusters with three servers. The
# servers run beside the nodes, in the nodes' networks: s1 and s3 at node a, s2 at node b. Each has
# a host name and an address of its own. A server can so be killed without its node.
#
# The suite reaches the servers through `knarr proxy-api`, since a kubeconfig names one address.

server_address() { echo "192.168.77.1$1"; } # server_address NUMBER

# server_ready NUMBER: whether a server answers that it is ready.
server_ready() {
  "${enter_net[@]}" "$knarr" kubectl --kubeconfig "$state/s$1/kubeconfig" get --raw /readyz --request-timeout 2s >/dev/null 2>&1
}

# server_start NUMBER FLAGS… starts a server, with further flags at its first start. Its log replaces
# that of its last start, which moves to another file.
server_start() {
  local number=$1 node=a address log=$cache/knarr-server-$1.log
  [ "$number" != 2 ] || node=b
  [ ! -e "$log" ] || cat "$log" >>"$cache/knarr-server-$1-past.log"
  address=$(server_address "$number")
  shift
  launch $node "$log" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "server-$number" \
    "$knarr" server --data-dir "$state/s$number" --listen "$address:6443" --peer-listen "$address:2380" --advertise-address "$address" \
    "${server_settings[@]}" "$@"
  echo "$launched" >"$state/server-$number.pid"
}

# servers_start starts three servers and the proxy, whose kubeconfig is in $state/proxy.
servers_start() {
  local number enter
  for number in 1 3; do "${enter_a[@]}" ip addr add "$(server_address $number)/24" dev cable; done
  "${enter_b[@]}" ip addr add "$(server_address 2)/24" dev cable
  server_start 1
  wait_for 60 "server 1" server_ready 1
  "${enter_a[@]}" "$knarr" token create --server --data-dir "$state/s1" --advertise-address "$(server_address 1)" >"$state/token" 2>/dev/null
  for number in 2 3; do
    server_start $number --join "https://$(server_address 1):6443" --token-file "$state/token"
    wait_for 60 "server $number" server_ready $number
  done
  "${enter_a[@]}" "$knarr" token create --data-dir "$state/s1" --advertise-address "$(server_address 1)" >"$state/token" 2>/dev/null
  mkdir -p "$state/proxy"
  kubeconfig=$state/proxy/kubeconfig
  launch a "$cache/proxy.log" env XDG_CACHE_HOME="$state/proxy" "$knarr" proxy-api --kubeconfig "$state/s1/kubeconfig" \
    --server "$(server_address 1):6443,$(server_address 2):6443,$(server_address 3):6443" --kubeconfig-out "$kubeconfig"
  wait_for 10 "the proxy" test -s "$kubeconfig"
}

# servers_join are the flags with which a node joins all servers.
servers_join() {
  echo --join "$(server_address 1):6443,$(server_address 2):6443,$(server_address 3):6443" --token-file "$state/token"
}

# killer kills one server after the other, every $1 seconds, and starts it again after $2 seconds.
# A server is killed only while the other two are ready. It writes each step to kills.txt.
killer() {
  local every=$1 back=$2 number=0 other pid
  tell_kill() { echo "$(date -u +%H:%M:%S) $*" >>"$cache/kills.txt"; }
  while :; do
    # In steps of a second, so that no process outlives the killer for long.
    for _ in $(seq "$every"); do sleep 1; done
    number=$((number % 3 + 1))
    for other in 1 2 3; do
      wait_for 120 "server $other" server_ready $other || tell_kill "server $other is not ready"
    done
    pid=$(cat "$state/server-$number.pid")
    kill -KILL "$pid" && tell_kill "killed server $number"
    for _ in $(seq "$back"); do sleep 1; done
    server_start $number && tell_kill "started server $number"
  done
}

# servers_kill starts the killer; cluster_remove ends it before the servers.
servers_kill() {
  : >"$cache/kills.txt"
  killer "${KILL_EVERY:-120}" "${KILL_BACK:-15}" >>"$cache/killer.log" 2>&1 &
  started killer $!
}
