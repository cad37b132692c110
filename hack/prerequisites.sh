#!/usr/bin/env bash
# prerequisites.sh WHAT: installs what is missing on a Debian-like machine for WHAT: build, test,
# conformance, field, release, kubectl or ui.
set -euo pipefail
case "${1:-}" in
build) packages=(make gperf zstd dpkg-dev) ;;
test) packages=(make gperf zstd dpkg-dev curl iproute2) ;;
conformance) packages=(make gperf zstd dpkg-dev curl iproute2 debootstrap bzip2 xz-utils) ;;
field) packages=(iproute2 debootstrap e2fsprogs) ;;
release) packages=(make gperf zstd dpkg-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross) ;;
kubectl) packages=(curl iproute2 jq openssl) ;;
ui)
  packages=(chromium fonts-noto-cjk iproute2)
  command -v npm >/dev/null || packages+=(npm) # fetches the rules of axe
  ;;
*) echo "usage: prerequisites.sh build|test|conformance|field|release|kubectl|ui" >&2; exit 2 ;;
esac
command -v "${GO:-go}" >/dev/null || { echo "prerequisites.sh: Go is missing: install Go 1.26 or newer and put it on the PATH" >&2; exit 1; }
command -v cc >/dev/null || packages+=(gcc libc6-dev)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "prerequisites.sh: install these first: ${missing[*]}" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "prerequisites.sh: as root: apt-get install ${missing[*]}" >&2; exit 1; }
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
