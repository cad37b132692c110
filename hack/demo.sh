#!/usr/bin/env bash
# demo.sh: starts a cluster on this machine or uses the running one. Builds the sample's images
# without a registry, deploys the sample and waits until it answers. After a failure, the last line
# is the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
knarr=$PWD/bin/knarr
cache=$PWD/.cache/demo
data=/var/lib/knarr
timeout=180 # seconds for pods to become ready
export KUBECONFIG=$data/kubeconfig
mkdir -p "$cache"

# fail REASON...: exits with the reason as the last line.
fail() { echo "demo.sh: $*" >&2; exit 1; }
kubectl() { "$knarr" kubectl "$@"; }
answers() { [ -e "$KUBECONFIG" ] && kubectl get --raw /readyz >/dev/null 2>&1; }
# fetch: uses no proxy, because the addresses are this machine's and its pods'.
fetch() { curl -fsS -m 2 --noproxy '*' "$@" 2>"$cache/curl.log"; }

running="" # the process of a step: Ctrl-C ends it, too
trap '[ -z "$running" ] || kill "$running" 2>/dev/null; exit 130' INT TERM

# step TEXT COMMAND...: runs a command with its output in a log and shows how long it takes. If it
# fails, step shows the end of the log.
step() {
  local text=$1 began=$SECONDS shown=0
  shift
  printf '%-52s' "$text"
  "$@" >"$cache/step.log" 2>&1 &
  running=$!
  while kill -0 "$running" 2>/dev/null; do
    sleep 0.1
    if [ $((SECONDS - began - shown)) -ge 10 ]; then
      shown=$((SECONDS - began))
      printf ' %ss' "$shown"
    fi
  done
  if wait "$running"; then
    running=""
    printf ' ok, %ss\n' $((SECONDS - began))
    return
  fi
  printf ' FAILED, %ss\n' $((SECONDS - began))
  tail -n 20 "$cache/step.log" >&2
  fail "$text: $(tail -n 1 "$cache/step.log")"
}

# start: starts the cluster in the background and waits until it is ready. After a failure it exits
# with the reason.
start() {
  if [ -e "$data/pki" ]; then
    echo "a stopped cluster is in $data: it is started again"
  else
    echo "starting a cluster: knarr up --detach"
  fi
  if ! "$knarr" up --detach >"$cache/up.log" 2>&1; then
    cat "$cache/up.log" >&2
    fail "no cluster: $(why_not_started)"
  fi
  grep -E '^(degraded|ready)' "$cache/up.log"
}

# why_not_started: prints the first missing requirement with its remedy, or the last line of output.
why_not_started() {
  awk '/^  missing:/ && !found { sub(/^  missing: */, ""); line = $0; found = 1 }
       /^  remedy:/ && found == 1 { sub(/^  remedy: */, ""); line = line "; " $0; found = 2 }
       NF { last = $0 } END { print found ? line : last }' "$cache/up.log"
}

# Go templates; their variables are not the shell's.
# shellcheck disable=SC2016
unready_pods='{{range .items}}{{$pod := .metadata.name}}
{{- range .status.conditions}}{{if and (eq .type "PodScheduled") (eq .status "False")}}{{$pod}}: {{.reason}}: {{.message}}{{"\n"}}{{end}}{{end}}
{{- range .status.containerStatuses}}{{if not .ready}}{{$pod}}: {{with .state.waiting}}{{.reason}} {{or .message ""}}{{end}}
{{- with .state.terminated}}{{.reason}} {{or .message ""}}{{end}}
{{- with .state.running}}runs, and is not ready{{end}}{{"\n"}}{{end}}{{end}}{{end}}'
# shellcheck disable=SC2016
unready_nodes='{{range .items}}{{$node := .metadata.name}}
{{- range .status.conditions}}{{if and (eq .type "Ready") (ne .status "True")}}node {{$node}} is not ready: {{.message}}{{"\n"}}{{end}}{{end}}{{end}}'

# unready: prints a line with the reason for each pod that is not ready.
unready() { kubectl -n harbour get pods -o go-template="$unready_pods" 2>&1 || true; }

warnings() {
  kubectl -n harbour get events --field-selector type=Warning --sort-by=.metadata.creationTimestamp \
    -o go-template='{{range .items}}{{.involvedObject.name}}: {{.reason}}: {{.message}}{{"\n"}}{{end}}' 2>/dev/null | tail -n 5 || true
}

node_problem() { kubectl get nodes -o go-template="$unready_nodes" 2>/dev/null | head -n 1 || true; }

# give_up WHAT: prints everything known about the cause, and exits with the most likely one.
give_up() {
  local missing cause
  {
    kubectl -n harbour get pods,services -o wide || true
    unready
    warnings
    "$knarr" doctor >"$cache/doctor.log" 2>&1 || true
    grep -A 1 '^missing' "$cache/doctor.log" || true
  } >&2
  missing=$(sed -n 's/^missing  *//p' "$cache/doctor.log" | tr -s ' ' | head -n 1)
  for cause in "$missing" "$(node_problem)" "$(warnings | tail -n 1)" "$(unready | head -n 1)" "$(tail -n 1 "$cache/curl.log" 2>/dev/null)"; do
    [ -z "$cause" ] || fail "$1: $cause"
  done
  fail "$1, and neither pods, events nor knarr doctor tell why; see $data/knarr.log"
}

# await TEXT COMMAND...: repeats a command until it succeeds, and shows how long it takes.
await() {
  local text=$1 began=$SECONDS shown=0
  shift
  printf '%-52s' "$text"
  until "$@" >/dev/null 2>&1; do
    if [ $((SECONDS - began)) -ge $timeout ]; then
      printf ' FAILED, %ss\n' $((SECONDS - began))
      give_up "$text: not within $timeout s"
    fi
    if [ $((SECONDS - began - shown)) -ge 10 ]; then
      shown=$((SECONDS - began))
      printf ' %ss' "$shown"
    fi
    sleep 0.2
  done
  printf ' ok, %ss\n' $((SECONDS - began))
}

rolled_out() {
  kubectl -n harbour rollout status --watch=false "$1" | grep -qE 'successfully rolled out|roll(ing update| out) complete'
}

build_images() {
  for part in store api web; do
    CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath" go build -ldflags '-s -w' -o "$cache/$part" "./examples/harbour/$part"
    "$knarr" image build --tag "harbour/$part:v1" "$cache/$part"
  done
}

[ "$(id -u)" = 0 ] || fail "run it as root (sudo make demo): containers and network namespaces are made"
step "installing what is missing" hack/prerequisites.sh test
if answers; then
  echo "a cluster runs already: it is used ($KUBECONFIG)"
else
  start
fi
step "building three images and loading them" build_images
step "applying examples/harbour/harbour.yaml" kubectl apply -f examples/harbour/harbour.yaml
for part in statefulset/store deployment/api deployment/web; do
  await "waiting for $part" rolled_out "$part"
done

address=$(kubectl -n harbour get service web -o jsonpath='{.spec.clusterIP}')
node=$(kubectl get nodes -o jsonpath='{.items[0].status.addresses[?(@.type=="InternalIP")].address}')
ship="Knarr $(date +%H:%M:%S)"
read_back() { fetch "$1/arrivals" | grep -q "$ship"; }
front_page() { fetch "$1" | grep -q '<h1>Harbour</h1>'; }
await "writing through the Service, http://$address/" fetch -X POST -d "{\"ship\": \"$ship\"}" "http://$address/arrivals"
await "reading it back" read_back "http://$address"
await "asking the node port, http://localhost:30080/" front_page "http://localhost:30080/"
await "asking the node port, http://$node:30080/" front_page "http://$node:30080/"

# The declared architecture: clusters of other versions may not have its kinds.
if kubectl apply -f examples/harbour/architecture.yaml >"$cache/step.log" 2>&1; then
  echo "declared the harbour's architecture: bin/knarr map -n harbour shows it"
fi

cat <<END

The sample application answers: http://localhost:30080/ (node port), http://$address/ (its Service's address).

How to go on:
  bin/knarr kubectl get pods -A -o wide          what runs
  bin/knarr status                               how the cluster is, and what to type next
  bin/knarr map -n harbour                       which part needs which, as declared, derived and seen
  bin/knarr purge                                stops the cluster and removes everything it left
For your own kubectl, helm and client-go: export KUBECONFIG=$KUBECONFIG
END
