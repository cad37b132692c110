#!/usr/bin/env bash
# demo.sh: starts a cluster on this machine (or uses the one that runs already), builds the sample's images without a
# registry, deploys it and waits until it answers through its Service.
set -euo pipefail
cd "$(dirname "$0")/.."
knarr=$PWD/bin/knarr
cache=$PWD/.cache/demo
mkdir -p "$cache"
[ "$(id -u)" = 0 ] || { echo "demo.sh: run it as root: containers and network namespaces are made" >&2; exit 1; }
hack/prerequisites.sh test
export KUBECONFIG=/var/lib/knarr/kubeconfig

up() { [ -e "$KUBECONFIG" ] && "$knarr" kubectl get --raw /readyz >/dev/null 2>&1; }

if up; then
  echo "a cluster runs already: using it"
else
  echo "starting a cluster: knarr up (log: $cache/knarr.log)"
  setsid "$knarr" up >"$cache/knarr.log" 2>&1 </dev/null &
  pid=$!
  for _ in $(seq 600); do
    grep -q '^ready' "$cache/knarr.log" 2>/dev/null && break
    kill -0 "$pid" 2>/dev/null || { cat "$cache/knarr.log"; exit 1; }
    sleep 0.1
  done
  grep '^ready' "$cache/knarr.log" || { echo "demo.sh: no cluster after 60 s" >&2; cat "$cache/knarr.log" >&2; exit 1; }
fi

echo "building and loading three images"
for part in store api web; do
  CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath" go build -ldflags '-s -w' -o "$cache/$part" "./examples/harbour/$part"
  "$knarr" image build --tag "harbour/$part:v1" "$cache/$part"
done

"$knarr" kubectl apply -f examples/harbour/harbour.yaml
"$knarr" kubectl -n harbour rollout status statefulset/store --timeout=60s
"$knarr" kubectl -n harbour rollout status deployment/api --timeout=60s
"$knarr" kubectl -n harbour rollout status deployment/web --timeout=60s

address=$("$knarr" kubectl -n harbour get service web -o jsonpath='{.spec.clusterIP}')
node=$("$knarr" kubectl get nodes -o jsonpath='{.items[0].status.addresses[?(@.type=="InternalIP")].address}')
ship="Knarr $(date +%H:%M:%S)"
for _ in $(seq 100); do
  curl -fsS -m 2 -X POST -d "{\"ship\": \"$ship\"}" "http://$address/arrivals" >/dev/null 2>"$cache/curl.log" && answered=yes && break
  sleep 0.2
done
[ "${answered:-}" = yes ] || { echo "demo.sh: the Service does not answer" >&2; cat "$cache/curl.log" >&2; "$knarr" kubectl -n harbour get pods,services -o wide >&2; exit 1; }
curl -fsS "http://$address/arrivals" | grep -q "$ship" || { echo "demo.sh: what was written is not read back" >&2; exit 1; }
curl -fsS "http://$node:30080/" | grep -q '<h1>Harbour</h1>' || { echo "demo.sh: the node port does not answer" >&2; exit 1; }

cat <<END

The sample application answers: http://$node:30080/ (node port), http://$address/ (its Service's address).

How to go on:
  bin/knarr kubectl get pods -A -o wide          what runs
  bin/knarr kubectl -n harbour logs deploy/api   what it says
  export KUBECONFIG=$KUBECONFIG                  for your own kubectl, helm, client-go
  bin/knarr purge                                stops the cluster and removes everything it left
END
