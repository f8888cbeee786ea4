#!/bin/sh
# Install the programs that tests of containment and of the pages use: a container engine, bubblewrap, a browser. As root
# on Debian or Ubuntu; elsewhere those tests say what they miss. Does nothing if all are there.
set -eu
packages=""
for pair in podman:podman runc:runc busybox:busybox-static bwrap:bubblewrap chromium:chromium; do
    PATH="$PATH:/usr/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || packages="$packages ${pair##*:}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Tests of containment or in a browser will be skipped; they need:$packages" >&2
    exit 0
fi
echo "Installing$packages ..." >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get -qq -y install --no-install-recommends $packages >/dev/null 2>&1 && exit 0
apt-get -qq update && apt-get -qq -y install --no-install-recommends $packages >/dev/null ||
    echo "Tests of containment or in a browser will be skipped; these could not be installed:$packages" >&2
