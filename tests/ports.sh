#!/usr/bin/env bash
# Tries Eddy on another system: in a fresh Debian below FOLDER, made by debootstrap, with a copy of this tree. Needs root, a
# network and the package debootstrap. It mounts in a namespace of its own and changes no file of this system.
# docs/platforms.md says what has been tried.
#
#   tests/ports.sh debian-12 [FOLDER]      both commands of README.md, whole
#   tests/ports.sh debian-13 [FOLDER]      the same
#   tests/ports.sh gcc-13 [FOLDER]         library, program and tests compiled with g++ 13, the compiler of Ubuntu 24.04,
#                                          on Debian 13, and the tests of tensor, autograd, ops and models run
#   tests/ports.sh debian-sid [FOLDER]     the same with the newest compiler and libraries
#   tests/ports.sh clang-19 [FOLDER]       the same with clang 19 and libstdc++ on Debian 12
#
# FOLDER is /var/tmp/eddy-ports if none is named; it keeps the system for the next trial. DEBIAN_MIRROR names another mirror
# for debootstrap. CI=1 makes warnings errors.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
trial="${1:-}" folder="${2:-/var/tmp/eddy-ports}"
case "$trial" in
  debian-12 | clang-19) suite=bookworm ;;
  debian-13 | gcc-13) suite=trixie ;;
  debian-sid) suite=sid ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
  echo "ports.sh: needs root and the package debootstrap" >&2
  exit 1
fi
if [[ -z "${EDDY_PORTS_INSIDE:-}" ]]; then
  EDDY_PORTS_INSIDE=1 exec unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" "$trial" "$folder"
fi

system="$folder/$suite"
if [[ ! -e "$system/made" ]]; then
  rm -rf "$system" # what an interrupted call left
  mkdir -p "$system"
  debootstrap --variant=minbase --include=ca-certificates,git "$suite" "$system" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
  touch "$system/made"
fi

# The tree as it stands, with what is not committed, as a checkout of its own.
copy="$system/eddy-$trial"
rm -rf "$copy"
mkdir "$copy"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --target-directory "$copy")

mount --bind "$system" "$system"
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
# A mirror's list of Debian sid may be older than a week.
echo 'Acquire::Check-Valid-Until "false";' >"$system/etc/apt/apt.conf.d/99-old-lists"
[[ -e /etc/resolv.conf ]] && cp /etc/resolv.conf "$system/etc/resolv.conf"
inside() {
  chroot "$system" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    TERM=dumb CI="${CI:-}" DEBIAN_FRONTEND=noninteractive "$@"
}
packages() {
  inside apt-get update -qq
  inside apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
# commands COMMAND: in the tree's copy.
commands() { inside bash -euo pipefail -c "cd /eddy-$trial && git init -q && git add -A && $1"; }
# CI=1 makes warnings errors, as tests/run.sh does.
build_all="cmake/install_dependencies.sh && cmake --preset release ${CI:+-DEDDY_WERROR=ON} && cmake --build --preset release"
suites='for suite in tensor autograd ops models; do build/release/bin/test_$suite; done'

case "$trial" in
  debian-12 | debian-13) commands 'examples/quickstart.sh && tests/run.sh' ;;
  gcc-13)
    packages g++-13
    # Debian 13's libraries need the libstdc++ of g++ 14, which is found when a program starts, not by g++ 13's linker.
    commands "export CC=gcc-13 CXX=g++-13 LDFLAGS=-Wl,--allow-shlib-undefined && $build_all && $suites"
    ;;
  debian-sid)
    commands "$build_all && $suites"
    ;;
  clang-19)
    packages clang-19
    commands "export CC=clang-19 CXX=clang++-19 && cmake/install_dependencies.sh && cmake --preset release &&
      cmake --build --preset release --target eddy_program test_tensor test_autograd test_ops test_models && $suites"
    ;;
esac
inside bash -c "cat /etc/os-release | grep PRETTY; ${CXX:-g++} --version | head -1" || true
echo "ports.sh: $trial passed"
