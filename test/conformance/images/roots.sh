#!/usr/bin/env bash
# roots.sh OUT [BIN]: creates the root folders of the conformance suite's images in OUT, one folder
# per image. Without BIN it creates only those from Debian's packages, so that the rest is quick
# afterwards. BIN holds agnhost, sample-apiserver and etcd, built from their Go modules (see
# ../build.sh). Debian's packages come from the mirror in this machine's apt configuration. Needs
# root.
set -euo pipefail
out=$(realpath -m "$1") bin=${2:+$(realpath "$2")}
here=$(cd "$(dirname "$0")" && pwd)
work=$out/.work
mkdir -p "$work"

mirror=$( (grep -rhoE '^(URIs: |deb )[^#]*' /etc/apt/sources.list /etc/apt/sources.list.d/ 2>/dev/null || true) |
  (grep -oE 'https?://[^ ]+/debian/?' || true) | head -n 1)
[ -n "$mirror" ] || { echo "roots.sh: no Debian mirror in /etc/apt" >&2; exit 1; }

need() { command -v "$1" >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null; }; }

# made PART: reports whether this version of the script has created the part. The key is the text of
# the part's function, and the mirror.
made() { [ "$(cat "$work/$1.done" 2>/dev/null)" = "$(key "$1")" ]; }
key() { { declare -f "$1"; echo "$mirror"; } | sha256sum | cut -d' ' -f1; }

# base: one Debian root for all images that need more than one program. Tests execute some of its
# tools in pods: wget, socat, nsenter (util-linux), perl, stress.
base() {
  need debootstrap debootstrap
  rm -rf "$work/base"
  debootstrap --variant=minbase \
    --include=bash,curl,bind9-dnsutils,netcat-openbsd,iproute2,util-linux,nginx-light,ca-certificates,iputils-ping,wget,socat,perl-base,stress,iptables,conntrack,e2fsprogs,xfsprogs \
    bookworm "$work/base" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail -20 "$work/debootstrap.log" >&2; exit 1; }
  rm -rf "$work"/base/var/cache/apt/* "$work"/base/var/lib/apt/lists/* "$work"/base/usr/share/{doc,man,locale,info} "$work"/base/dev/*
}

# busybox: upstream's static one, since Debian's shell drops environment variables such as data-1.
busybox() {
  need gcc gcc; need make make; need bzip2 bzip2; need xz xz-utils
  local apt="$work/apt"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$work/busybox-src"
  printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s trixie main\n' "$mirror" >"$apt/sources.list"
  local opts=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Sandbox::User=root)
  apt-get "${opts[@]}" update -qq
  (cd "$work/busybox-src" && apt-get "${opts[@]}" source --download-only -qq busybox=1:1.37.0* 2>/dev/null || apt-get "${opts[@]}" source --download-only -qq busybox)
  rm -rf "$work/busybox-build"; mkdir "$work/busybox-build"
  tar -xf "$work"/busybox-src/busybox_1.37.0.orig.tar.* -C "$work/busybox-build" --strip-components=1
  (cd "$work/busybox-build" &&
    make defconfig >/dev/null 2>&1 &&
    sed -i 's/^# CONFIG_STATIC is not set/CONFIG_STATIC=y/; s/^CONFIG_TC=y/# CONFIG_TC is not set/' .config &&
    (yes '' || true) | make oldconfig >/dev/null 2>&1 &&
    make -j"$(nproc)" >../busybox.log 2>&1 && make CONFIG_PREFIX="$work/busybox" install >/dev/null 2>&1 &&
    for applet in $(./busybox --list); do [ -e "$work/busybox/bin/$applet" ] || ln -s busybox "$work/busybox/bin/$applet"; done) || { tail -20 "$work/busybox.log" >&2; exit 1; }
  mkdir -p "$work"/busybox/{etc,tmp,root,home,var/tmp,dev,proc,sys}
  chmod 1777 "$work/busybox/tmp" "$work/busybox/var/tmp"
  printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n' >"$work/busybox/etc/passwd"
  printf 'root:x:0:\nnobody:x:65534:\n' >"$work/busybox/etc/group"
}

fresh() { rm -rf "${out:?}/$1"; mkdir -p "$out/$1"; }

# debian is the root of agnhost, nginx, nonewprivs, glibc-dns-testing and more. They only differ in
# their command, and share their layer.
debian() {
  fresh debian
  cp -a "$work/base/." "$out/debian/"
  cp "$bin"/{agnhost,coredns,consume-cpu,regression-issue-74839} "$out/debian/"
  cp "$bin/resource-consumer" "$out/debian/consumer"
  cp "$bin/sample-device-plugin" "$out/debian/sampledeviceplugin"
  ln -sf agnhost "$out/debian/agnhost-2"
  mkdir -p "$out/debian/uploads" "$out/debian/usr/share/nginx/html"
  local module
  module=$(cd "$here/.." && go list -m -f '{{.Dir}}' k8s.io/kubernetes)
  install -m 0644 "$module/test/images/agnhost/porter/localhost.crt" "$out/debian/localhost.crt"
  install -m 0644 "$module/test/images/agnhost/porter/localhost.key" "$out/debian/localhost.key"
  echo 'user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh' >>"$out/debian/etc/passwd"
  printf 'user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n' >>"$out/debian/etc/group"
  echo '<html><head><title>Welcome to nginx!</title></head><body><h1>Welcome to nginx!</h1></body></html>' >"$out/debian/usr/share/nginx/html/index.html"
  cp "$here/nginx.conf" "$out/debian/etc/nginx/nginx.conf"
  mkdir -p "$out/debian/etc/nginx/conf.d"
  cp "$here/nginx-site.conf" "$out/debian/etc/nginx/conf.d/default.conf"
  cat >"$work/nnp.c" <<'C'
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("Effective uid: %d\n", (int)geteuid()); return 0; }
C
  gcc -static -O1 -o "$out/debian/usr/local/bin/nnp" "$work/nnp.c"
  chmod 4755 "$out/debian/usr/local/bin/nnp"
}

webserver() { # webserver NAME: agnhost with a small page
  fresh "$1"
  cp "$bin/agnhost" "$out/$1/agnhost"
  ln -sf agnhost "$out/$1/agnhost-2"
  mkdir -p "$out/$1/etc" "$out/$1/tmp"
  printf '{ "image": "%s.jpg" }\n' "$1" >"$out/$1/data.json"
  printf 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.18.0\nPRETTY_NAME="Alpine Linux v3.18"\n' >"$out/$1/etc/os-release"
  printf 'not a picture\n' >"$out/$1/$1.jpg"
}

single() { # single ROOT PROGRAM PATH
  fresh "$1"
  mkdir -p "$out/$1/tmp" "$out/$1/$(dirname "$3")"
  cp "$bin/$2" "$out/$1/$3"
}

pause() { # a process that waits until it is told to end
  fresh pause
  cat >"$work/pause.c" <<'C'
#include <signal.h>
#include <unistd.h>
static void end(int number) { _exit(0); }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }
C
  gcc -static -O1 -o "$out/pause/pause" "$work/pause.c"
}

for part in base busybox; do
  made $part && continue
  rm -rf "${work:?}/$part"
  echo "progress: the root folder $part: packages from $mirror"
  $part
  key $part >"$work/$part.done"
done
[ -n "$bin" ] || exit 0
fresh busybox; cp -a "$work/busybox/." "$out/busybox/"
debian; webserver nautilus; webserver kitten; pause
single sample-apiserver sample-apiserver sample-apiserver
single etcd etcd usr/local/bin/etcd
echo "roots.sh: $(du -sh --exclude=.work "$out" | cut -f1) in $out"
