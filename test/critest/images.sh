#!/usr/bin/env bash
# images.sh OUT ROOTS KNARR: writes the archives of critest's images to OUT, from root folders that
# the conformance suite's images also have (ROOTS).
set -euo pipefail
out=$(realpath -m "$1") roots=$(realpath -m "$2") knarr=$(realpath "$3")
cd "$(dirname "$0")"
conformance=../conformance/images
# The images are kept while this folder and the roots stay the same.
key=$(cat images.sh $conformance/{roots.sh,nginx.conf,nginx-site.conf} | sha256sum | cut -d' ' -f1)
[ "$(cat "$out/.done" 2>/dev/null)" != "$key" ] || exit 0
$conformance/roots.sh "$roots"
rm -rf "$out"
mkdir -p "$out"
e2e=registry.k8s.io/e2e-test-images cri=gcr.io/k8s-staging-cri-tools

image() { # image ARCHIVE ROOT FLAGS…
  local archive=$1 root=$2
  shift 2
  "$knarr" image build --output "$out/$archive.tar" "$@" "$root"
}

# busybox with the users and groups that the tests expect in images
small=$out/.busybox
cp -a "$roots/.work/busybox" "$small"
printf 'www-data:x:33:33::/:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\n' >>"$small/etc/passwd"
printf 'www-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n' >>"$small/etc/group"
# Tests mask one applet, so each is a name of its own for the program.
find "$small" -type l -lname '*busybox' -exec ln -f "$small/bin/busybox" {} \;
mkdir -p "$small/www" && echo ok >"$small/www/index.html"
# nginx on Debian: at port 80, and at the one that the tests expect in the node's network
large=$out/.debian
cp -a "$roots/.work/base" "$large"
mkdir -p "$large/usr/share/nginx/html" "$large/etc/nginx/conf.d"
echo ok >"$large/usr/share/nginx/html/index.html"
cp $conformance/nginx.conf "$large/etc/nginx/nginx.conf"
cp $conformance/nginx-site.conf "$large/etc/nginx/conf.d/default.conf"
sed 's/80;/12003;/' $conformance/nginx-site.conf >"$large/etc/nginx/hostnet-site.conf"
sed 's,conf.d/\*.conf,hostnet-site.conf,' $conformance/nginx.conf >"$large/etc/nginx/hostnet.conf"
cp "$small/bin/busybox" "$large/usr/local/bin/grep" # Debian's says only that a binary file matches
# a program that tells its effective user; its owner is root
printf '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("Effective uid: %%d\\n", (int)geteuid()); return 0; }\n' >"$out/nnp.c"
"${CC:-cc}" -static -O1 -o "$small/nnp" "$out/nnp.c"
chmod 4755 "$small/nnp"

image busybox "$small" --tag $e2e/busybox:1.29-2 --cmd sh
image httpd "$small" --tag $e2e/httpd:2.4.39-4 --cmd sh --cmd -c --cmd 'echo httpd: starting; exec httpd -f -p 80 -h /www'
image nonewprivs "$small" --tag $e2e/nonewprivs:1.3 --cmd /nnp
image nginx "$large" --tag $e2e/nginx:1.14-2 --cmd nginx --cmd -g --cmd 'daemon off;'
image hostnet-nginx "$large" --tag "$cri/hostnet-nginx-$(go env GOARCH)" --cmd nginx --cmd -c --cmd /etc/nginx/hostnet.conf --cmd -g --cmd 'daemon off;'
image pause "$small" --tag registry.k8s.io/pause:3.9 --env TEST=pause --cmd sleep --cmd 1000
image user-uid "$small" --tag $cri/test-image-user-uid --user 1002
image user-username "$small" --tag $cri/test-image-user-username --user www-data
image user-uid-group "$small" --tag $cri/test-image-user-uid-group --user 1003:users
image user-username-group "$small" --tag $cri/test-image-user-username-group --user www-data:100
image predefined-group "$small" --tag $cri/test-image-predefined-group --user 1000
# Images of one layer that differ in their configuration.
for name in 1:latest 2:latest 3:latest latest:latest tag:test tag:all tags:1; do
  more=()
  [ $name != tags:1 ] || more=(--tag $cri/test-image-tags:2 --tag $cri/test-image-tags:3)
  image "test-${name/:/-}" "$small" --tag "$cri/test-image-$name" "${more[@]}" --env "TEST=$name" --cmd sleep --cmd 1000
done
rm -rf "$small" "$large" "$out/nnp.c"
echo "$key" >"$out/.done"
