#!/usr/bin/env bash
# Tries Eddy on another system: in a fresh Debian below FOLDER, made by debootstrap, with a copy of this tree. Needs root, a
# network and the package debootstrap. It mounts in a namespace of its own and changes nothing of this system, and of this
# tree only the trial's row in docs/platforms.md, when it passed.
#
#   tests/ports.sh debian-12 [FOLDER]      both commands of README.md, whole
#   tests/ports.sh debian-13 [FOLDER]      the same
#   tests/ports.sh gcc-13 [FOLDER]         library, program and tests compiled with g++ 13, the compiler of Ubuntu 24.04,
#                                          on Debian 13, and the tests of tensor, autograd, ops and models run
#   tests/ports.sh debian-sid [FOLDER]     the same with the newest compiler and libraries
#   tests/ports.sh clang-19 [FOLDER]       the same with clang 19 and libstdc++ on Debian 12
#   tests/ports.sh optional-12 [FOLDER]    the program linked on Debian 12 without what is optional, and with each of it
#   tests/ports.sh optional-13 [FOLDER]    the same on Debian 13
#   tests/ports.sh optional-sid [FOLDER]   the same on Debian sid
#   tests/ports.sh cuda-13 [FOLDER]        the program compiled and linked on Debian 13 with its own nvcc (non-free), for
#                                          9.0; no GPU is needed, and none is used
#   tests/ports.sh wheel [FOLDER]          the wheel made on Debian 12, into build/wheels (cmake/packaging/wheel.sh)
#   tests/ports.sh wheel-12 [FOLDER]       that wheel installed on a bare Debian 12, where nothing but Python's venv is
#                                          added, and tried without a network (tests/wheel.sh)
#   tests/ports.sh wheel-13 [FOLDER]       the same on a bare Debian 13
#   tests/ports.sh wheel-sid [FOLDER]      the same on a bare Debian sid
#   tests/ports.sh macos [FOLDER]          every file compiled for macOS, not linked and not run (tests/macos.sh)
#   tests/ports.sh arm64 [FOLDER]          cross-compiled on Debian 12 for ARM64; the tests of tensor, autograd, ops and
#                                          models but the slow ones run by qemu-user, as a Cortex-A72 and as a processor
#                                          with all of NEON, BFMMLA too. It takes hours; called again for the same tree it
#                                          goes on with the suite that it had reached
#   tests/ports.sh quick [FOLDER]          the program built on Debian 13, and ten seconds of training: what continuous
#                                          integration tries. Where it cannot be tried this says why, and ends well
#
# FOLDER is /var/tmp/eddy-ports if none is named; it keeps the system for the next trial, but for the first two and those of
# the installed wheel, which always begin anew. DEBIAN_MIRROR names another mirror for debootstrap. CI=1 makes warnings errors.
# The status is 77 where the trial cannot be made at all.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
trial="${1:-}" folder="${2:-/var/tmp/eddy-ports}" compiler=g++
case "$trial" in
  debian-12 | optional-12 | wheel) suite=bookworm ;;
  clang-19) suite=bookworm compiler=clang++-19 ;;
  arm64) suite=bookworm compiler=aarch64-linux-gnu-g++ ;;
  debian-13 | optional-13 | cuda-13 | quick) suite=trixie ;;
  gcc-13) suite=trixie compiler=g++-13 ;;
  debian-sid | optional-sid) suite=sid ;;
  wheel-12) suite=bookworm compiler=none ;;
  wheel-13) suite=trixie compiler=none ;;
  wheel-sid) suite=sid compiler=none ;;
  macos) exec "$root/tests/macos.sh" "$folder/macos" ;; # which needs no other system
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
cannot() {
  if [[ "$trial" == quick ]]; then
    echo "ports.sh: skipped: $1"
    exit 0
  fi
  echo "ports.sh: $1" >&2
  exit 77
}
if [[ -n "${EDDY_PORTS_INSIDE:-}" ]]; then cannot "this system is such a trial itself"; fi
if [[ ! -e "$root/.git" ]]; then cannot "it tries the files that git knows, and this tree has no .git"; fi
if ((EUID != 0)); then cannot "it needs root"; fi
if ! command -v debootstrap >/dev/null; then cannot "it needs the package debootstrap"; fi
if [[ -z "${EDDY_PORTS_SPACE:-}" ]]; then
  space=(unshare --mount --pid --fork --kill-child)
  if ! "${space[@]}" true 2>/dev/null; then cannot "this system allows no namespace to mount in"; fi
  EDDY_PORTS_SPACE=1 exec "${space[@]}" "${BASH_SOURCE[0]}" "$trial" "$folder"
fi
heading() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

# What begins on a bare system: no git, no compiler, no packages of an earlier trial.
bare=false include=ca-certificates,git wheel=""
if [[ "$trial" == wheel-* ]]; then
  bare=true include=ca-certificates,python3-venv
  wheel="$(find "$root/build/wheels" -name '*.whl' 2>/dev/null | sort | tail -n 1)"
  if [[ -z "$wheel" ]]; then cannot "build/wheels has no wheel (cmake/packaging/wheel.sh makes one)"; fi
fi

system="$folder/$suite" was_kept=true
if [[ "$trial" == debian-1* || "$trial" == arm64 ]] || $bare; then system="$folder/$trial"; fi
if [[ "$trial" == debian-1* ]] || $bare; then rm -rf "$system"; fi
if [[ ! -e "$system/made" ]]; then
  heading "A new system, Debian $suite"
  was_kept=false
  rm -rf "$system" # what an interrupted call left
  mkdir -p "$system"
  if ! debootstrap --variant=minbase --include="$include" "$suite" "$system" \
    ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$folder/$suite.log" 2>&1; then
    tail -n 3 "$folder/$suite.log" >&2
    cannot "debootstrap cannot make a Debian $suite; $folder/$suite.log says why"
  fi
  touch "$system/made"
fi

# The tree as it stands, with what is not committed, as a checkout of its own.
copy="$system/eddy-$trial" log="$folder/$trial.log" date="$(date +%F)"
files() { (cd "$root" && git ls-files -z --cached --others --exclude-standard "$@"); }
tree="$(cd "$root" && files -- . ':!docs' | xargs -0 sha256sum | sha256sum | cut -c1-16)"
# A trial of hours keeps what it built, and which suites passed, as long as the tree is the same.
if [[ "$trial" != arm64 || "$(cat "$copy/build/tree" 2>/dev/null)" != "$tree" ]]; then
  rm -rf "$copy"
  mkdir -p "$copy/build"
  (cd "$root" && files | xargs -0 cp --parents --target-directory "$copy")
  echo "$tree" >"$copy/build/tree"
fi
if [[ -n "$wheel" ]]; then cp "$wheel" "$copy"; fi
commit="$(git -C "$root" rev-parse --short=8 HEAD)"
if [[ -n "$(git -C "$root" status --porcelain -- . ':!docs/platforms.md')" ]]; then commit+=" with changes"; fi

# There is no /sys, as in many containers.
if ! { mount --bind "$system" "$system" && mount -t proc proc "$system/proc" && mount --rbind /dev "$system/dev"; }; then
  cannot "this system refuses mounts below $system"
fi
# A mirror's list of Debian sid may be older than a week.
echo 'Acquire::Check-Valid-Until "false";' >"$system/etc/apt/apt.conf.d/99-old-lists"
[[ -e /etc/resolv.conf ]] && cp /etc/resolv.conf "$system/etc/resolv.conf"
inside() {
  chroot "$system" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    TERM=dumb CI="${CI:-}" EDDY_PORTS_INSIDE=1 DEBIAN_FRONTEND=noninteractive "$@"
}
# commands LINES: in the tree's copy, up to the first that fails. What they print is kept in $log too.
commands() {
  inside bash -euo pipefail -c "cd /eddy-$trial
    $1" 2>&1 | tee -a "$log"
}
packages() {
  inside apt-get update -qq
  inside apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
version_of() { # a package; nothing where it is not installed
  (inside dpkg-query --show --showformat='${Version}' "$1" 2>/dev/null || true) | sed -E 's/^[0-9]+://; s/[-+~].*//'
}

# What docs/platforms.md says of a trial that passed.
record() { # what ran
  local name version="" strict="" libraries="" library row
  name="$(inside bash -c '. /etc/os-release && echo "$PRETTY_NAME"' | sed 's/ GNU.Linux//')"
  if [[ "$compiler" != none ]]; then
    strict="${CI:+, warnings as errors}"
    version="$(inside bash -c "$compiler -dumpfullversion 2>/dev/null || $compiler -dumpversion")"
  fi
  local named="${compiler#aarch64-linux-gnu-}"
  for library in CMake:cmake OpenBLAS:libopenblas-dev fmt:libfmt-dev CLI11:libcli11-dev \
    SentencePiece:libsentencepiece-dev "Open MPI:libopenmpi-dev" libevent:libevent-dev libedit:libedit-dev \
    Python:python3; do
    [[ -n "$(version_of "${library#*:}")" ]] || continue
    libraries+="${libraries:+, }${library%:*} $(version_of "${library#*:}")"
  done
  row="| \`$trial\` | $date | $commit | $name | ${named%%-*}${version:+ $version} | $libraries | $1$strict |"
  awk -v begin="| \`$trial\` |" -v row="$row" '
    /^<!-- trials: / { inside = 1 }
    inside && index($0, begin) == 1 { if (!done++) print row; next }
    inside && /^<!-- end -->/ { if (!done++) print row; inside = 0 }
    { print }
    END { exit !done }' "$root/docs/platforms.md" >"$folder/platforms.md"
  cat "$folder/platforms.md" >"$root/docs/platforms.md"
  echo "$row"
}

# CI=1 makes warnings errors, as tests/run.sh does.
strict="${CI:+-DEDDY_WERROR=ON}"
build_and_test="cmake/install_dependencies.sh
  cmake --preset release $strict
  cmake --build --preset release
  for suite in tensor autograd ops models; do build/release/bin/test_\$suite; done"
cases() { awk '/^\[doctest\] test cases:/ { sum += $4 } END { print sum }' "$log"; }
# The program alone. What is found is forgotten before, and of an earlier build what did not change is kept.
program_only="$strict -DEDDY_BUILD_TESTS=OFF -DEDDY_BUILD_EXAMPLES=OFF"
configure="rm -f build/release/CMakeCache.txt
  cmake --preset release $program_only"
link='cmake --build --preset release --target eddy_program'

# expects TEXT: eddy info says so. refuses TEXT COMMAND ...: the command fails, and says so.
checks='
expects() {
  local said
  said="$(build/release/eddy info)"
  if [[ "$said" != *"$1"* ]]; then echo "ports.sh: eddy info does not say: $1" >&2; exit 1; fi
}
refuses() {
  local text="$1" said
  shift
  if said="$("$@" 2>&1)" || [[ "$said" != *"$text"* ]]; then
    echo "ports.sh: $* does not say: $text" >&2
    exit 1
  fi
}'

try_optional() {
  local tried=() package cuda release host="" list
  heading "Without what is optional"
  for package in libopenmpi-dev openmpi-bin libevent-dev libedit-dev doxygen clang-19; do
    if [[ -n "$(version_of $package)" ]]; then inside apt-get purge -y -qq --auto-remove $package >/dev/null; fi
  done
  commands "EDDY_NO_OPTIONAL=1 cmake/install_dependencies.sh
    $configure
    $link
    $checks
    expects 'page server: none'
    expects 'line editing: none'
    refuses 'install libevent-dev' build/release/eddy watch .
    expects 'ranks: none'
    expects 'cuda: not in this build'
    refuses 'doxygen is not installed' cmake --build --preset release --target api
    refuses 'clang++-19 is not installed' tests/parse.sh
    refuses 'no nvcc on the PATH' cmake -S . -B build/no-nvcc -G Ninja -DEDDY_CUDA=ON"
  heading "With libevent"
  packages libevent-dev
  tried+=("libevent $(version_of libevent-dev)")
  commands "$configure
    $link
    $checks
    expects 'page server: libevent'"
  heading "With libedit"
  packages libedit-dev
  tried+=("libedit $(version_of libedit-dev)")
  commands "$configure
    $link
    $checks
    expects 'line editing: libedit'"
  heading "With MPI"
  packages libopenmpi-dev openmpi-bin
  tried+=("Open MPI $(version_of libopenmpi-dev)")
  commands "$configure
    $link
    $checks
    expects 'ranks: MPI'"
  heading "With Doxygen"
  packages doxygen
  tried+=("Doxygen $(version_of doxygen)")
  commands "$configure
    cmake --build --preset release --target api"
  heading "With clang 19"
  if [[ -z "$(inside apt-cache madison clang-19)" ]]; then
    echo "this system has no clang 19"
  else
    packages clang-19
    tried+=("clang $(version_of clang-19)")
    commands "cmake -S . -B build/clang -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 $program_only
      cmake --build build/clang --target eddy_program
      build/clang/eddy info"
  fi
  # Debian 12's own toolkit is older than what Eddy needs: that of this machine is lent.
  heading "With nvcc"
  cuda="$(realpath -e /usr/local/cuda 2>/dev/null || true)"
  if [[ -z "$cuda" ]]; then
    echo "this machine has no /usr/local/cuda"
  else
    mkdir -p "$system/usr/local/cuda"
    mount --bind -o ro "$cuda" "$system/usr/local/cuda"
    # nvcc refuses newer compilers.
    if (($(inside g++ -dumpversion | sed 's/\..*//') > 15)); then
      packages g++-15
      host=-DCMAKE_CUDA_HOST_COMPILER=g++-15
    fi
    release="nvcc $(inside /usr/local/cuda/bin/nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    # CUDA 13.0 and Debian sid's C library declare rsqrt in two ways.
    if [[ "$suite" != sid ]] || inside /usr/local/cuda/bin/nvcc ${host:+-ccbin "${host#*=}"} -x cu -c -o /dev/null /dev/null; then
      tried+=("$release")
      commands "$configure -DEDDY_CUDA=ON -DEDDY_CUDA_ARCHITECTURES=90 $host
        $link
        $checks
        expects 'cuda: built for 90 '"
    else
      tried+=("not $release, which cannot compile an empty file there")
    fi
    umount "$system/usr/local/cuda"
  fi
  list="$(printf ', %s' ${tried[@]+"${tried[@]}"})"
  record "the program linked without what is optional, then with one thing more at a time: ${list#, }"
}

# Two processors: one with NEON alone, and one with BFMMLA. With SVE OpenBLAS would take kernels that qemu runs at a crawl.
try_arm64() {
  local passed="$copy/build/passed" cpu level suite mark begin count took seconds=0
  # qemu-user makes a fork of a vfork, so that a child that cannot start tells nothing, and stops in the fork of a process
  # with threads.
  local forks='process: a child becomes*,thread pool: a forked process*'
  inside dpkg --add-architecture arm64
  packages g++-aarch64-linux-gnu qemu-user cmake ninja-build pkg-config nlohmann-json3-dev libcli11-dev doctest-dev \
    {libopenblas,libfmt,libtomlplusplus,libsentencepiece,libabsl,libxxhash}-dev:arm64
  mkdir -p "$passed"
  commands "export PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig
    cmake -S . -B build/arm64 -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
      -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=$compiler \
      -DEDDY_BUILD_EXAMPLES=OFF -DEDDY_MPI=OFF $strict
    cmake --build build/arm64 --target eddy_program test_tensor test_autograd test_ops test_models"
  for cpu in cortex-a72 max,sve=off; do
    level=neon
    if [[ "$cpu" == max* ]]; then level=neon_bf16; fi
    commands "qemu-aarch64 -cpu $cpu build/arm64/eddy info | grep 'kernels: $level (best here: $level)'"
    for suite in tensor autograd ops models; do
      mark="$passed/$cpu-$suite"
      if [[ ! -e "$mark" ]]; then
        heading "The tests of $suite on $cpu"
        begin=$SECONDS
        commands "qemu-aarch64 -cpu $cpu build/arm64/bin/test_$suite --source-file-exclude='*/test_slow_*' --test-case-exclude='$forks'"
        count="$(awk '/^\[doctest\] test cases:/ { last = $4 } END { print last + 0 }' "$log")"
        echo "$count $((SECONDS - begin))" >"$mark"
      fi
      read -r count took <"$mark"
      seconds=$((seconds + took))
      echo "$suite on $cpu: $count cases in $took s"
    done
  done
  count="$(cat "$passed"/* | awk '{ sum += $1 } END { print sum }')"
  record "cross-compiled; $count cases of tensor, autograd, ops and models pass by qemu-user, as cortex-a72 and as \
max,sve=off, in $(((seconds + 1800) / 3600)) hours; two cases of children and forks, which qemu-user does otherwise, are left out"
}

rm -f "$log"
heading "Packages"
if $was_kept; then # it has grown old
  inside dpkg --configure -a
  { inside apt-get update -qq && inside apt-get dist-upgrade -y -qq >/dev/null; } ||
    echo "ports.sh: the kept system cannot be renewed and is tried as it is" >&2
fi
if ! $bare; then
  commands "git init -q
    git add -A"
fi
heading "Trial"
compiled() { record "library, program and tests compiled; $(cases) cases of tensor, autograd, ops and models pass"; }
case "$trial" in
  debian-*[0-9])
    commands "examples/quickstart.sh
      tests/run.sh"
    record "both commands of README: \`examples/quickstart.sh\` whole, \`tests/run.sh\` whole with $(
      sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$log" | tail -n 1) tests"
    ;;
  gcc-13)
    packages g++-13
    # Debian 13's libraries need the libstdc++ of g++ 14, which is found when a program starts, not by g++ 13's linker.
    commands "export CC=gcc-13 CXX=g++-13 LDFLAGS=-Wl,--allow-shlib-undefined
      $build_and_test"
    compiled
    ;;
  debian-sid)
    commands "$build_and_test"
    compiled
    ;;
  clang-19)
    packages clang-19 libclang-rt-19-dev # the emulated GPU checks alignment as it runs
    commands "export CC=clang-19 CXX=clang++-19
      $build_and_test"
    compiled
    ;;
  optional-*) try_optional ;;
  cuda-13)
    echo "deb ${DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie contrib non-free" >"$system/etc/apt/sources.list.d/non-free.list"
    packages nvidia-cuda-toolkit
    commands "cmake/install_dependencies.sh
      rm -f build/cuda-ci/CMakeCache.txt
      cmake --preset cuda-ci $program_only
      cmake --build --preset cuda-ci --target eddy_program
      build/cuda-ci/eddy info"
    record "the program compiled for 9.0 and linked with Debian's nvcc $(version_of nvidia-cuda-toolkit); no GPU"
    ;;
  wheel)
    packages python3
    commands "cmake/install_dependencies.sh
      cmake/packaging/wheel.sh --here"
    rm -rf "$root/build/wheels"
    mkdir -p "$root/build"
    cp -r "$copy/build/wheels" "$root/build/wheels"
    ls "$root/build/wheels"/*.whl
    ;;
  wheel-*)
    commands "tests/wheel.sh ${wheel##*/}"
    record "\`${wheel##*/}\` installed by pip, and \`tests/wheel.sh\` whole, without a network;$(
      sed -n 's/^wheel.sh: \(from the file to a trained sample\):/ \1/p' "$log")"
    ;;
  arm64) try_arm64 ;;
  quick)
    # Without a network, on stories that Eddy writes.
    commands "cmake/install_dependencies.sh
      $configure
      $link
      build/release/eddy info
      unshare --net build/release/eddy train examples/configs/quickstart.toml --run runs/quick --train.minutes 0.17
      test -s runs/quick/report.html"
    ;;
esac
heading "$trial passed"
