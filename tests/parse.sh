#!/usr/bin/env bash
# Reads every source and test file by itself with a second compiler, clang, with warnings as errors. The build's precompiled
# headers and units of several files hide missing includes, and another compiler finds other faults.
#
#   tests/parse.sh          with clang++-19, or with the compiler that the environment variable CLANG names
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root" # presets are looked up in the working directory
clang="${CLANG:-clang++-19}"
if ! command -v "$clang" >/dev/null; then
  echo "parse.sh: $clang is not installed (Debian's package clang-19, or name another by CLANG)" >&2
  exit 1
fi
cmake --preset parse -DCMAKE_CXX_COMPILER="$clang" >/dev/null

# The commands of the build, each file once; of kernels, which are compiled for several instruction sets, the two that
# hold all code: f64 in the baseline, and AVX-512.
commands() {
  sed -n 's/^ *"command": "\(.*\)",\{0,1\}$/\1/p' build/parse/compile_commands.json | sed 's/\\\(.\)/\1/g' |
    grep -v 'EDDY_ISA=isa_avx2' | sed 's/ -o [^ ]* -c / -fsyntax-only /' |
    awk '{ key = $NF; if (key ~ /\.isa\.cpp$/ && /isa_avx512/) key = key " avx512"; if (!seen[key]++) print }'
}
echo "$(commands | wc -l) readings with $("$clang" --version | head -n 1)"
commands | xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'eval "$0"'
