#!/usr/bin/env bash
# side.sh SIDE OUT is run by run.sh in a copy of upstream's suite and in namespaces of its own. It
# starts upstream's or knarr's API server and controllers as hack/make-rules/test-cmd.sh does, with
# one node that has no agent. It calls all functions of the suite. OUT/results has a line for each;
# OUT/FUNCTION.log has its output.
side=$1 results=$2 # the suite uses a variable named out
export TERM=xterm LANG=C
ALLOW_SKEW=yes # knarr's version is v1.36.3+knarr, which differs from the client's
ip link set lo up
# the address of an API server in its Service must not be loopback
ip address add 192.0.2.1/32 dev lo
source hack/lib/init.sh
source hack/lib/test.sh
source test/cmd/legacy-script.sh >"$results/suite.out" 2>&1

# Replaces the suite's own function: the binaries exist, and all processes end with the namespace.
make() { :; }
cleanup() { :; }

kube::etcd::start() {
  [ "$side" = upstream ] || return 0
  etcd --data-dir "$TMPDIR/etcd" --unsafe-no-fsync --log-level warn >"$results/etcd.out" 2>&1 &
  kube::util::wait_for_url "http://127.0.0.1:$ETCD_PORT/health" etcd
}

# Each function runs in its own shell, which ends at the first failure.
record_command() {
  local name=$1 began=$SECONDS verdict=passed
  [[ $name =~ ${FOCUS:-} ]] || return 0
  set +o nounset +o errexit
  ("$@") >"$results/$name.log" 2>&1 </dev/null
  [ $? = 0 ] || verdict=failed
  set -o nounset -o errexit
  echo "$name $verdict" >>"$results/results"
  echo "$side: $name $verdict after $((SECONDS - began)) s"
}

start_api_server() {
  local key=$TMPDIR/accounts.key
  local flags=(--advertise-address=192.0.2.1 --authorization-mode=RBAC,AlwaysAllow --runtime-config=api/v1
    --enable-admission-plugins=LimitRanger,ResourceQuota
    --disable-admission-plugins=ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,StorageObjectInUseProtection
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$key" --service-account-signing-key-file="$key"
    --client-ca-file=hack/testdata/ca/ca.crt --token-auth-file=hack/testdata/auth-tokens.csv)
  openssl genrsa -out "$key" 2048 2>/dev/null
  if [ "$side" = upstream ]; then
    kube-apiserver "${flags[@]}" --bind-address=127.0.0.1 --secure-port="$SECURE_API_PORT" --etcd-servers="http://127.0.0.1:$ETCD_PORT" --cert-dir="$TMPDIR" \
      --service-cluster-ip-range=10.0.0.0/24 >"$results/apiserver.out" 2>&1 &
  else
    knarr apiserver "${flags[@]}" --listen="127.0.0.1:$SECURE_API_PORT" --data-dir="$TMPDIR/data" --run-dir="$TMPDIR/run" \
      --service-cidr=10.0.0.0/24 >"$results/apiserver.out" 2>&1 &
    # where upstream's server writes its own: functions read it
    ln -s data/pki/apiserver.crt "$TMPDIR/apiserver.crt"
  fi
  kube::util::wait_for_url_with_bearer_token "https://127.0.0.1:$SECURE_API_PORT/readyz" admin-token "API server" 1 60
}

start_controllers() {
  local flags=(--kubeconfig="$HOME/.kube/config" --cluster-signing-cert-file=hack/testdata/ca/ca.crt --cluster-signing-key-file=hack/testdata/ca/ca.key)
  if [ "$side" = upstream ]; then
    kube-controller-manager "${flags[@]}" --leader-elect=false >"$results/controllers.out" 2>&1 &
  else
    knarr controllers "${flags[@]}" --allocate-node-cidrs=false --data-dir="$TMPDIR/controllers" --run-dir="$TMPDIR/run-controllers" >"$results/controllers.out" 2>&1 &
  fi
  kube::util::wait_for_url "https://127.0.0.1:$SECURE_CTLRMGR_PORT/healthz" controllers 1 60
}

{
  setup
  start_api_server
  start_controllers
  kubectl create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "127.0.0.1", "annotations": {"run-by": "nobody"}}, "status": {"capacity": {"memory": "1Gi"}}}'
} >"$results/start.out" 2>&1
SUPPORTED_RESOURCES=('*')
runTests > >(tee -a "$results/suite.out" | grep --line-buffered "^$side: ") 2>&1
