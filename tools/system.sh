#!/bin/sh
# Install the system packages that some tests need: a container engine, bubblewrap and a browser. Works as root on
# Debian and Ubuntu. Elsewhere those tests are skipped and name the missing program.
set -eu
packages=""
for pair in podman:podman runc:runc busybox:busybox-static bwrap:bubblewrap chromium:chromium; do
    PATH="$PATH:/usr/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || packages="$packages ${pair##*:}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Skipping container and browser tests. Install these packages to run them:$packages" >&2
    exit 0
fi
echo "Installing$packages ..." >&2
export DEBIAN_FRONTEND=noninteractive
# Waits up to ten minutes for another apt process, such as the first upgrade of a new machine.
apt() {
    apt-get -qq -y -o DPkg::Lock::Timeout=600 "$@" 2>&1 >/dev/null
}
# apt waits for the lock of dpkg, but not for the lock of the package lists.
update() {
    for _ in $(seq 120); do
        errors=$(apt update) && return
        case "$errors" in *"Could not get lock"*) sleep 5 ;; *) return ;; esac
    done
}
# shellcheck disable=SC2086
apt install --no-install-recommends $packages >/dev/null && exit 0
update
# shellcheck disable=SC2086
errors=$(apt install --no-install-recommends $packages) || {
    echo "$errors" >&2
    echo "Skipping container and browser tests. These packages could not be installed:$packages" >&2
}
