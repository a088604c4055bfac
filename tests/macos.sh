#!/usr/bin/env bash
# Compiles every file by itself for macOS on ARM64, by the clang and the headers of the Python package ziglang. Nothing is
# linked and nothing runs: a Mac is needed for that. The headers of libraries are those of this system; Accelerate is
# declared in the tree; MPI is left out. What can be built on Linux alone is too: sources that end in _linux.cpp, and
# tests/faults, tests/emulation and tests/ptx.
#
#   tests/macos.sh FOLDER             every file, warnings as errors: about an hour on two cores. Files that passed are not
#                                     read again until something of the tree is newer
#   tests/macos.sh FOLDER FILE ...    these files, such as tensor/tensor.cpp
#
# FOLDER takes the package and what is written. Needs what a build needs, Python and, once, a network.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
if (($# == 0)) || [[ "$1" == -* ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
  exit 2
fi
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
shift
target=aarch64-macos.14.0
zig="$folder/python/bin/python"
if ! "$zig" -m ziglang version >/dev/null 2>&1; then
  python3 -m venv "$folder/python"
  "$folder/python/bin/pip" install --quiet ziglang
fi
export ZIG_GLOBAL_CACHE_DIR="$folder/cache" ZIG_LOCAL_CACHE_DIR="$folder/cache"

# The headers of libraries alone: the folder that holds them has those of Linux too.
headers="$folder/headers"
rm -rf "$headers"
mkdir "$headers"
for name in fmt nlohmann CLI toml++ xxhash.h xxh3.h doctest event2 event.h histedit.h absl \
  sentencepiece_processor.h sentencepiece_trainer.h; do
  for place in /usr/include /usr/local/include; do
    if [[ -e "$place/$name" ]]; then ln -s "$place/$name" "$headers/$name"; fi
  done
done

build="$folder/build"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DEDDY_SYSTEM=portable -DEDDY_BLAS=none -DEDDY_MPI=OFF >/dev/null

# The commands of that build, each file once, and what only Accelerate needs: the flags that name macros and folders of the
# tree stay, but for the levels of kernels, which are those of ARM64.
commands() {
  sed -n 's/^ *"command": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sed 's/\\\(.\)/\1/g' |
    grep -v -E 'EDDY_ISA=isa_avx|/tests/(faults|emulation|ptx)/' | awk '!seen[$NF]++ {
      line = ""
      for (i = 2; i <= NF; ++i)
        if ($i ~ /^-[DI]/ && $i !~ /^-I\/usr\//) line = line " " $i
      sub(/EDDY_ISA=isa_baseline/, "EDDY_ISA=isa_neon", line)
      sub(/EDDY_X86_LEVELS/, "EDDY_ARM64_LEVELS", line)
      print $NF line }'
  echo "$root/ops/product/cblas.cpp -I$root -I$build/include -DEDDY_ACCELERATE"
}
commands >"$folder/commands"

# compile LINE: a file and its flags. The object is not kept. toml++ and doctest ask cfloat, which is empty behind <cmath> in
# this libc++: so float.h is read first.
compile() {
  local file="${1%% *}" passed
  passed="$folder/passed/$(tr '/' '+' <<<"${file#"$root"/}")"
  if [[ "$passed" -nt "$folder/newest" ]]; then return; fi
  if eval "$zig -m ziglang c++ -target $target -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror \
    -Wno-sign-conversion -Wno-unknown-pragmas -Wno-deprecated-declarations -Wno-c2y-extensions \
    -include float.h -isystem $headers ${1#* } -c $file -o $passed.o" 2>"$passed.log"; then
    touch "$passed"
  else
    grep -E 'error' "$passed.log" | head -n 5
    echo "macos.sh: $file is not compiled; $passed.log says why"
    rm -f "$passed.o"
    return 1
  fi
  rm -f "$passed.o" "$passed.log"
}
export -f compile
export root folder target zig headers

mkdir -p "$folder/passed"
# The newest file of the tree tells what passed before it.
newest="$(cd "$root" && git ls-files -z -- '*.h' '*.cpp' 'CMakeLists.txt' | xargs -0 ls -t | sed -n 1p)"
touch -r "$root/$newest" "$folder/newest"
if (($# > 0)); then
  for file in "$@"; do grep "^$root/$file " "$folder/commands" || echo "$root/$file: no such file of the build" >&2; done
else
  cat "$folder/commands"
fi >"$folder/run"
echo "$(wc -l <"$folder/run") files for $target by $("$zig" -m ziglang c++ --version 2>/dev/null | head -n 1)"
tr '\n' '\0' <"$folder/run" | xargs -0 -n 1 -P "$(getconf _NPROCESSORS_ONLN)" bash -c 'compile "$0"'
