#!/bin/sh
# libseccomp.sh OUTDIR [HOST]: builds libseccomp's static library and headers into OUTDIR/lib and
# OUTDIR/include, from its pinned source release. The source comes from Debian's archive and its
# hash is checked, so every build and every architecture links the same code (LGPL-2.1: NOTICE
# explains how to link another version). HOST is the GNU triplet of a cross build, such as
# aarch64-linux-gnu. An existing build is kept. SECCOMP_SOURCE is the path of the tarball, if no
# Debian archive is reachable.
set -eu
version=2.5.4
hash=d82902400405cf0068574ef3dc1fe5f5926207543ba1ae6f8e7a1576351dcbdb
[ $# -ge 1 ] || { echo "usage: libseccomp.sh OUTDIR [HOST]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
host=${2:-}
[ "$(cat "$out/.version" 2>/dev/null)" = "$version $host" ] && exit 0

fail() { echo "libseccomp.sh: $*" >&2; exit 1; }

# fetch downloads the source tarball with its own list of sources, so that the machine's apt does
# not change.
fetch() {
	command -v apt-get >/dev/null || fail "no apt-get here: set SECCOMP_SOURCE to libseccomp-$version.tar.gz"
	mirror=$( (grep -rhoE '^(URIs: |deb )[^#]*' /etc/apt/sources.list /etc/apt/sources.list.d/ 2>/dev/null || true) |
		grep -oE 'https?://[^ ]+/debian/? *' | head -n 1 | tr -d ' ')
	[ -n "$mirror" ] || fail "no Debian archive in /etc/apt: set SECCOMP_SOURCE to libseccomp-$version.tar.gz"
	apt=$out/apt
	mkdir -p "$apt/lists/partial" "$apt/archives/partial"
	printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s bookworm main\n' "$mirror" >"$apt/sources.list"
	set -- -qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" \
		-o "Dir::Cache=$apt" -o APT::Sandbox::User=root
	apt-get "$@" update || fail "the Debian archive does not answer"
	(cd "$out" && apt-get "$@" source --download-only libseccomp) || fail "the Debian archive has no source of libseccomp $version"
	mv "$out/libseccomp_$version.orig.tar.gz" "$out/source.tar.gz"
	rm -rf "$apt" "$out"/libseccomp_*
}

if [ -n "${SECCOMP_SOURCE:-}" ]; then
	cp "$SECCOMP_SOURCE" "$out/source.tar.gz"
elif ! echo "$hash  $out/source.tar.gz" | sha256sum --check --status 2>/dev/null; then
	fetch
fi
echo "$hash  $out/source.tar.gz" | sha256sum --check --status || fail "the source of libseccomp $version has another hash than $hash"

rm -rf "$out/build" "$out/lib" "$out/include"
mkdir "$out/build"
tar -xzf "$out/source.tar.gz" -C "$out/build" --strip-components=1
cd "$out/build"
{
	# The folder's name must not get into the library: builds are reproducible.
	./configure --disable-shared --enable-static ${host:+--host="$host"} --prefix=/ \
		CFLAGS="-O2 -ffile-prefix-map=$out/build=." && make -C include && make -C src -j"$(nproc)" libseccomp.la
} >"$out/build.log" 2>&1 || { tail -n 20 "$out/build.log" >&2; fail "the build failed ($out/build.log)"; }
mkdir "$out/lib" "$out/include"
cp src/.libs/libseccomp.a "$out/lib/"
cp include/seccomp.h include/seccomp-syscalls.h "$out/include/"
cp LICENSE "$out/LICENSE"
cd "$out"
rm -rf build
echo "$version $host" >.version
