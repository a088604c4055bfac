#!/usr/bin/env bash
# Makes the wheel eddy-train in build/wheels: the program with all that it loads but glibc, for `pip install FILE`.
#
#   cmake/packaging/wheel.sh           in a fresh Debian 12 (tests/ports.sh wheel), where this machine lets one be made:
#                                      what is inside is then known, whatever is installed here; otherwise here
#   cmake/packaging/wheel.sh --here    here: on Debian or Ubuntu, after cmake/install_dependencies.sh
#
# The wheel runs where glibc is as new as its name says: as the oldest that a file inside asks for, which for one of Debian
# 12 is 2.36: its libstdc++ and libevent do. Python makes it, by its standard library alone.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
cd "$root"
case "${1:-}" in
  --here) ;;
  "")
    status=0
    tests/ports.sh wheel || status=$?
    if ((status != 77)); then exit $status; fi
    echo "wheel.sh: so the wheel is made here"
    ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac

if ! command -v python3 >/dev/null; then
  echo "wheel.sh: it needs python3" >&2
  exit 1
fi
unset CFLAGS CXXFLAGS LDFLAGS # which may be meant for this processor
# RPATH instead of RUNPATH: it also serves the libraries that libraries load. MPI belongs to a machine.
cmake -S . -B build/wheel -G Ninja -DCMAKE_BUILD_TYPE=Release -DEDDY_BUILD_TESTS=OFF -DEDDY_BUILD_EXAMPLES=OFF \
  -DEDDY_MPI=OFF "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../libexec/eddy" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
cmake --build build/wheel --target eddy_program
rm -rf build/wheel/prefix build/wheels
cmake --install build/wheel --prefix build/wheel/prefix --strip >/dev/null
python3 cmake/packaging/wheel.py build/wheel/prefix build/wheels
