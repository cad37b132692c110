#!/bin/sh
# build.sh OUTDIR [EMBEDDIR]: builds the programs that knarr includes into OUTDIR, static and
# stripped, and packs them for embedding into EMBEDDIR. It needs Go, a C compiler, make, gperf and
# zstd; libseccomp.sh builds libseccomp from its pinned source. GOARCH=arm64 builds for that
# architecture, with the cross compiler aarch64-linux-gnu-gcc unless CC names one.
set -eu
cd "$(dirname "$0")"
[ $# -ge 1 ] || { echo "usage: build.sh OUTDIR [EMBEDDIR]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
embed=${2:+$(mkdir -p "$2" && cd "$2" && pwd)}
go=${GO:-go}
# Under hack/steps, Go prints the packages that it compiles.
export GOFLAGS=${STEPS:+-v} GOWORK=off
# triplet is the prefix of the cross compiler's tools; empty for the machine's own architecture.
triplet=''
if [ "$($go env GOARCH)" != "$($go env GOHOSTARCH)" ]; then
	case "$($go env GOARCH)" in
	amd64) triplet=x86_64-linux-gnu ;;
	arm64) triplet=aarch64-linux-gnu ;;
	*) echo "build.sh: GOARCH=$($go env GOARCH): wanted amd64 or arm64" >&2; exit 2 ;;
	esac
fi
export CC="${CC:-${triplet:+$triplet-gcc}}"
export CC="${CC:-cc}"
module=github.com/containerd/containerd/v2
version=$($go list -m -f '{{.Version}}' $module)
plain="-s -w -X $module/version.Version=$version"

./libseccomp.sh "$out/libseccomp" $triplet
# Go records the flags of a build, and the programs must be the same from every folder. Therefore
# the flags contain no path: wrappers of pkg-config (for runc) and of the compiler (for cgo) find
# libseccomp.
tools=$out/.tools
mkdir -p "$tools"
cat >"$tools/pkg-config" <<'EOF'
#!/bin/sh
case "$*" in *--libs*) echo -lseccomp ;; *--cflags*) ;; *) echo 2.5.0 ;; esac
EOF
cat >"$tools/knarr-cc" <<EOF
#!/bin/sh
exec $CC "\$@" -I'$out/libseccomp/include' -L'$out/libseccomp/lib'
EOF
chmod +x "$tools"/*
# Other builds of these packages, such as tests, read this file to find them in Go's cache.
cat >"$tools/env" <<EOF
export PATH='$tools':"\$PATH" CC=knarr-cc CGO_ENABLED=1 CGO_CFLAGS='-O2 -DLIBSECCOMP=$(cut -d' ' -f1 "$out/libseccomp/.version")' CGO_LDFLAGS=-O2
EOF

CGO_ENABLED=0 $go build -trimpath -ldflags "$plain" -o "$out/containerd" ./containerd

# static TAGS OUTPUT PACKAGE: builds a program that contains runc's C code.
static() {
	(. "$tools/env" && $go build -trimpath -tags "seccomp netgo osusergo $1" \
		-ldflags "$plain -linkmode external -extldflags '-static'" -o "$out/$2" "$3")
}
static 'inprocess no_grpc runc_nocriu' containerd-shim-runc-v2 ./shim
static 'urfave_cli_no_docs' runc github.com/opencontainers/runc
names='containerd containerd-shim-runc-v2 runc pause'
$CC -Os -static -s -o "$out/pause" pause/pause.c
if [ -f cni/main.go ]; then
	CGO_ENABLED=0 $go build -trimpath -ldflags '-s -w' -o "$out/knarr-cni" ./cni
	names="$names knarr-cni"
fi
[ -z "$embed" ] || GOARCH='' CC=cc $go run ./pack "$embed" $(for name in $names; do echo "$out/$name"; done)
