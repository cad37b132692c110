#!/usr/bin/env bash
# release.sh [OUTDIR]: makes the archives of a release for linux amd64 and arm64 in OUTDIR (default:
# dist). It builds from an export of the checked out commit, without uncommitted changes. The same
# commit, Go and compiler give the same files. VERSION is the name of the release; ARCHES lists the
# architectures.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:?release.sh: VERSION is missing: make release sets it}
arches=${ARCHES:-amd64 arm64}
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
work=$PWD/.cache/release
commit=$(git rev-parse HEAD)
date=$(TZ=UTC0 git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD)
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git show -s --format=%ct HEAD)
plain=${version#v}
[ -z "$(git status --porcelain)" ] || echo "release.sh: changes that are not committed are left out" >&2

began=$SECONDS
say() { printf '%4ds  %s\n' $((SECONDS - began)) "$*"; }

# pack FOLDER ARCHIVE: makes a tar.gz that depends only on the content.
pack() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$(dirname "$1")" -cf - "$(basename "$1")" | gzip -9n >"$2"
}

# build ARCH: builds the binary for one architecture from an export of the commit.
build() {
  local tree=$work/source-$1
  rm -rf "$tree"
  mkdir -p "$tree"
  git archive HEAD | tar -x -C "$tree"
  # Keep this architecture's programs in a folder of their own between releases.
  mkdir -p "$work/runtime-$1" "$tree/.cache"
  ln -s "$work/runtime-$1" "$tree/.cache/runtime"
  GOARCH=$1 make -C "$tree" binary VERSION="$version" COMMIT="$commit" DATE="$date" TREE=clean >"$work/build-$1.log" 2>&1 || {
    tail -n 30 "$work/build-$1.log" >&2
    echo "release.sh: the build for $1 failed ($work/build-$1.log)" >&2
    exit 1
  }
}

# describe ARCH FOLDER: writes NOTICE and the bill of materials of an architecture's binaries.
describe() {
  local programs=$work/runtime-$1 libc
  libc=$(libc_version "$1")
  (cd hack/release && go run . -out "$2" -version "$version" -commit "$commit" -date "$date" \
    -library "libseccomp@$(cut -d' ' -f1 "$programs/libseccomp/.version")=LGPL-2.1-only=$programs/libseccomp/LICENSE" \
    -library "glibc@$libc=LGPL-2.1-or-later=/usr/share/common-licenses/LGPL-2.1" \
    "$work/source-$1/bin/knarr" "$programs"/{containerd,containerd-shim-runc-v2,runc,knarr-cni})
}

# libc_version ARCH: prints the version of the statically linked C library.
libc_version() {
  local package=libc6-dev
  [ "$1" = "$(go env GOHOSTARCH)" ] || package=libc6-dev-$1-cross
  dpkg-query -W -f '${Version}' "$package"
}

# lgpl_sources: downloads the sources of the statically linked C libraries (LGPL-2.1, section 6).
lgpl_sources() {
  local dir=$work/lgpl apt=$work/apt mirror
  rm -rf "$dir" "$apt"
  mkdir -p "$dir" "$apt/lists/partial" "$apt/archives/partial"
  cp "$work/runtime-${arches%% *}/libseccomp/source.tar.gz" "$dir/libseccomp-$(cut -d' ' -f1 "$work/runtime-${arches%% *}/libseccomp/.version").tar.gz"
  mirror=$( (grep -rhoE '^(URIs: |deb )[^#]*' /etc/apt/sources.list /etc/apt/sources.list.d/ 2>/dev/null || true) | grep -oE 'https?://[^ ]+/debian/? *' | head -n 1 | tr -d ' ')
  printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$(. /etc/os-release && echo "$VERSION_CODENAME")" >"$apt/sources.list"
  local opts=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Sandbox::User=root)
  apt-get "${opts[@]}" update
  (cd "$dir" && apt-get "${opts[@]}" source --download-only glibc)
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work" -cf "$out/knarr-lgpl-sources.tar" lgpl
}

# deb ARCH FOLDER: makes a Debian package with the binary, its documents and the bash completion.
deb() {
  local root=$work/deb-$1
  rm -rf "$root"
  mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/doc/knarr"
  cp "$2/knarr" "$root/usr/bin/knarr"
  cp "$2"/{LICENSE,NOTICE,README.md,CHANGELOG.md,SECURITY.md} "$root/usr/share/doc/knarr/"
  cat >"$root/DEBIAN/control" <<END
Package: knarr
Version: $plain
Architecture: $1
Maintainer: the knarr authors <knarr@localhost>
Section: admin
Priority: optional
Recommends: ca-certificates
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Homepage: https://github.com/knarr-project/knarr
Description: a whole Kubernetes in one binary
 Store, API server, scheduler, controllers, node agent with its container
 runtime, service proxy, pod network, cluster DNS, image tools and kubectl.
 Run "knarr doctor", then "knarr up". Removing the package keeps the cluster's
 data: run "knarr purge" first to remove that too.
END
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zgzip --build "$root" "$out/knarr_${plain}_$1.deb" >/dev/null
}

mkdir -p "$work"
for arch in $arches; do
  say "$arch: building the binary"
  build "$arch"
  name=knarr-$version-linux-$arch
  folder=$work/$name
  rm -rf "$folder"
  mkdir "$folder"
  cp "$work/source-$arch/bin/knarr" LICENSE README.md CHANGELOG.md SECURITY.md "$folder/"
  say "$arch: collecting licences and the bill of materials"
  describe "$arch" "$folder"
  cp "$folder/knarr.spdx.json" "$out/$name.spdx.json"
  say "$arch: packing $name.tar.gz and the Debian package"
  pack "$folder" "$out/$name.tar.gz"
  deb "$arch" "$folder"
done
say "sources of the C libraries"
lgpl_sources
(cd "$out" && rm -f SHA256SUMS && sha256sum knarr* >SHA256SUMS)
say "ready: $out"
ls -lh "$out" | awk 'NR > 1 {print "      " $5 "\t" $9}'
