#!/usr/bin/env bash
# Carries out the sections %files, %post and %test of env/hpcgnn.def in a chroot that debootstrap makes: a check of the recipe
# for a machine without Apptainer. It makes no image, and says nothing about how Apptainer starts one.
#
#   bash env/check-container.sh FOLDER [PATH…]    as root; FOLDER is made (some 2 GB)
#
# PATH…: folders of this machine that pip needs inside, such as one with wheels or certificates; they cannot be written to. Variables of
# this shell that name certificates (PIP_CERT, SSL_CERT_FILE, REQUESTS_CA_BUNDLE) hold inside too: let them name a file in such a folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "check-container: error: $*" >&2; exit 2; }
[ $# -gt 0 ] || fail "expected the folder to make: bash env/check-container.sh FOLDER"
root=$1
shift
[ ! -e "$root" ] || fail "$root exists; name a new folder"
[ "$(id -u)" = 0 ] || fail "a chroot needs root"
command -v debootstrap > /dev/null || fail "no debootstrap; install it: apt-get install debootstrap"

section() { awk -v name="%$1" '/^%/ {inside = $1 == name; next} inside' env/hpcgnn.def; }

distribution=$(sed -n 's/^From: debian://p' env/hpcgnn.def)
debootstrap --variant=minbase "$distribution" "$root" > /dev/null || fail "debootstrap failed; $root/debootstrap/debootstrap.log says why"
root=$(realpath "$root")
mounted=()
trap 'for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount "${mounted[i]}"; done' EXIT
for path in /proc /dev /dev/shm "$@"; do
    [ -d "$path" ] || fail "$path is not a folder"
    mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
    mounted+=("$root$path")
done
# Installations inside must not write to this machine through them.
for path in "$@"; do mount -o remount,bind,ro "$root$path"; done
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
section files | while read -r from to; do
    [ -n "$from" ] || continue
    mkdir -p "$root$(dirname "$to")"
    cp -rL "$from" "$root$to"
done
section post | chroot "$root" sh -e
section test | chroot "$root" env LC_ALL=C.UTF-8 sh -e
echo "check-container: the recipe's %post and %test end well"
