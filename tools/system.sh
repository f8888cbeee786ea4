#!/bin/sh
# Install the system packages that some tests need: a container engine, bubblewrap, a browser, Redis and etcd. Works as
# root on Debian and Ubuntu. Elsewhere those tests are skipped and name the missing program.
set -eu
# Prometheus and PgBouncer are unpacked into .cache, not installed: a package would start its daemon.
unpack() {
    folder=.cache/debian
    [ -x "$folder/usr/bin/promtool" ] && [ -x "$folder/usr/sbin/pgbouncer" ] && return
    command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || return 0
    mkdir -p "$folder/packages"
    fetch() { (cd "$folder/packages" && apt-get -qq download prometheus pgbouncer libc-ares2 >/dev/null 2>&1); }
    fetch || { [ "$(id -u)" = 0 ] && apt-get -qq update >/dev/null 2>&1 && fetch; } || {
        echo "Skipping tests with Prometheus and PgBouncer: their packages could not be downloaded" >&2
        return 0
    }
    for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder"; done
}
unpack
packages=""
for pair in podman:podman runc:runc busybox:busybox-static bwrap:bubblewrap chromium:chromium \
    redis-server:redis-server etcd:etcd-server; do
    PATH="$PATH:/usr/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || packages="$packages ${pair##*:}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Skipping container, browser and engine tests. Install these packages to run them:$packages" >&2
    exit 0
fi
echo "Installing$packages ..." >&2
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # the tests start their own servers: packages must start none
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
    echo "Skipping container, browser and engine tests. These packages could not be installed:$packages" >&2
}
