#!/usr/bin/env bash
# prerequisites.sh WHAT: installs what is missing on a Debian-like machine for WHAT: build, test, conformance or kubectl.
set -euo pipefail
case "${1:-}" in
build) packages=(libseccomp-dev zstd) ;;
test) packages=(libseccomp-dev zstd curl iproute2) ;;
conformance) packages=(libseccomp-dev zstd curl iproute2 debootstrap make bzip2 xz-utils dpkg-dev) ;;
kubectl) packages=(curl iproute2 jq openssl) ;;
*) echo "usage: prerequisites.sh build|test|conformance|kubectl" >&2; exit 2 ;;
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
