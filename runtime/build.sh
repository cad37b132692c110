#!/bin/sh
# build.sh OUTDIR [EMBEDDIR]: builds the programs that knarr carries along into OUTDIR, static and stripped, and packs them
# for embedding into EMBEDDIR. Needs Go, a C compiler and zstd; libseccomp's static library is taken from the system or, on Debian
# without it, unpacked from its package into OUTDIR without installing anything.
set -eu
cd "$(dirname "$0")"
[ $# -ge 1 ] || { echo "usage: build.sh OUTDIR [EMBEDDIR]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
embed=${2:+$(mkdir -p "$2" && cd "$2" && pwd)}
go=${GO:-go}
cc=${CC:-cc}
# Run by hack/steps, Go prints what it compiles.
export GOFLAGS=${STEPS:+-v} GOWORK=off
module=github.com/containerd/containerd/v2
version=$($go list -m -f '{{.Version}}' $module)
plain="-s -w -X $module/version.Version=$version"

# seccomp: says how to compile against libseccomp, without depending on pkg-config.
seccomp() {
	probe='#include <seccomp.h>
int main(void) { return seccomp_api_get() == 0; }'
	if printf '%s' "$probe" | $cc -x c -static -o "$out/.probe" - -lseccomp 2>/dev/null; then
		rm -f "$out/.probe"
		return
	fi
	root=$out/libseccomp
	if [ ! -d "$root/usr" ]; then
		command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
			echo "build.sh: libseccomp with its static library and headers is missing: install libseccomp-dev (Debian), libseccomp-static (Fedora)" >&2
			exit 1
		}
		mkdir -p "$root"
		(cd "$root" && apt-get -qq download libseccomp-dev && dpkg-deb -x libseccomp-dev_*.deb .) || {
			rm -rf "$root"
			echo "build.sh: cannot fetch libseccomp-dev: install it (apt-get update && apt-get install libseccomp-dev)" >&2
			exit 1
		}
	fi
	include="-I$root/usr/include"
	library=$(dirname "$(find "$root/usr/lib" -name libseccomp.a | head -n 1)")
	library="-L$library"
}
include='' library=''
seccomp
# runc asks pkg-config for libseccomp's flags; this answers in its place. Paths go by the environment: the go command's cache
# does not notice when pkg-config's answer changes.
cat >"$out/.pkg-config" <<'EOF'
#!/bin/sh
case "$*" in *--libs*) echo -lseccomp ;; *--cflags*) ;; *) echo 2.5.0 ;; esac
EOF
chmod +x "$out/.pkg-config"

CGO_ENABLED=0 $go build -trimpath -ldflags "$plain" -o "$out/containerd" ./containerd

# static TAGS OUTPUT PACKAGE: builds what contains runc's C code.
static() {
	CGO_ENABLED=1 PKG_CONFIG="$out/.pkg-config" CGO_CFLAGS="-O2 $include" CGO_LDFLAGS="-O2 $library" $go build -trimpath -tags "seccomp netgo osusergo $1" \
		-ldflags "$plain -linkmode external -extldflags '-static'" -o "$out/$2" "$3"
}
static 'inprocess no_grpc runc_nocriu' containerd-shim-runc-v2 ./shim
static 'urfave_cli_no_docs' runc github.com/opencontainers/runc
names='containerd containerd-shim-runc-v2 runc pause'
$cc -Os -static -s -o "$out/pause" pause/pause.c
if [ -f cni/main.go ]; then
	CGO_ENABLED=0 $go build -trimpath -ldflags '-s -w' -o "$out/knarr-cni" ./cni
	names="$names knarr-cni"
fi
[ -z "$embed" ] || $go run ./pack "$embed" $(for name in $names; do echo "$out/$name"; done)
