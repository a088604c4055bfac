#!/usr/bin/env bash
# Reads every source and test file by itself with a second compiler, clang, with warnings as errors. The build's precompiled
# headers and units of several files hide missing includes, and another compiler finds other faults.
#
#   tests/parse.sh            with clang++-19, or with the compiler that the environment variable CLANG names
#   tests/parse.sh --plain    each file with all of its headers as text, which takes twice as long
#
# Two thirds of the time of a plain reading go to the headers of the standard library, JSON, fmt and CLI11. So these are
# read once, as clang's header modules. Unlike a precompiled header, a module shows a file only what that file includes.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root" # presets are looked up in the working directory
plain=false
case "${1:-}" in
  "") ;;
  --plain) plain=true ;;
  *)
    echo "parse.sh: unknown option: $1 (--plain)" >&2
    exit 2
    ;;
esac
clang="${CLANG:-clang++-19}"
if ! command -v "$clang" >/dev/null; then
  echo "parse.sh: $clang is not installed (Debian's package clang-19, or name another by CLANG)" >&2
  exit 1
fi
cmake --preset parse -DCMAKE_CXX_COMPILER="$clang" >/dev/null
modules="$root/build/parse/modules"

# Writes $modules/map: a module for each header of the standard library that the tree reaches, and for those of three
# libraries (fmt is one module, since its templates need each other). A header that reads differently at each inclusion
# (cassert) is none.
write_map() {
  rm -rf "$modules"
  mkdir -p "$modules"
  grep -rhoE --include='*.h' --include='*.cpp' '^#include <[a-z_]+>' tensor autograd ops models train tests |
    sort -u >"$modules/all.cpp"
  local headers header number=0
  headers="$("$clang" -std=c++20 -M "$modules/all.cpp" | tr -s ' \\' '\n' | grep -E '/c\+\+/[0-9.]+/[a-z_]+$' |
    xargs realpath | sort -u)"
  {
    echo "module standard_library [system] {"
    for header in $headers; do
      if [[ "${header##*/}" != cassert ]]; then
        echo "  module m$((number += 1)) { header \"$header\" export * }"
      fi
    done
    echo "}"
    echo "module json [system] {"
    for header in detail/abi_macros json_fwd json; do
      echo "  module $(basename $header) { header \"/usr/include/nlohmann/$header.hpp\" export * }"
    done
    echo "}"
    echo 'module fmt [system] { header "/usr/include/fmt/core.h" header "/usr/include/fmt/format.h"'
    echo '  header "/usr/include/fmt/ranges.h" export * }'
    echo 'module cli [system] { header "/usr/include/CLI/CLI.hpp" export * }'
  } >"$modules/map"
}

# The commands of the build, each file once; of kernels, which are compiled for several instruction sets, the two that
# hold all code: f64 in the baseline, and AVX-512.
commands() {
  sed -n 's/^ *"command": "\(.*\)",\{0,1\}$/\1/p' build/parse/compile_commands.json | sed 's/\\\(.\)/\1/g' |
    grep -v 'EDDY_ISA=isa_avx2' | sed 's/ -o [^ ]* -c / -fsyntax-only /' |
    awk '{ key = $NF; if (key ~ /\.isa\.cpp$/ && /isa_avx512/) key = key " avx512"; if (!seen[key]++) print }'
}

# Lets the files share modules: options and macros that do not change how a library's header reads are left out or not
# counted. Kernels have options of their own and few includes, so they are read plainly.
share() {
  local options="-fmodules -Wno-modules-ambiguous-internal-linkage -Wno-modules-import-nested-redundant -Xclang -fmodules-local-submodule-visibility -fno-implicit-module-maps \
-fmodule-map-file=$modules/map -fmodules-cache-path=$modules/cache"
  local macro
  for macro in $(grep -oE -- '-D(EDDY|eddy)_\w+' "$modules/commands" | sort -u); do
    options+=" -fmodules-ignore-macro=${macro#-D}"
  done
  sed -E "/EDDY_ISA=/!{s/ -fPI[CE]//; s/ -g / /; s# -fsyntax-only # $options&#;}" "$modules/commands"
}

if $plain; then
  mkdir -p "$modules"
  commands >"$modules/run"
else
  write_map
  commands >"$modules/commands"
  share >"$modules/run"
fi
echo "$(wc -l <"$modules/run") readings with $("$clang" --version | head -n 1)"
tr '\n' '\0' <"$modules/run" | xargs -0 -n 1 -P "$(getconf _NPROCESSORS_ONLN)" bash -c 'eval "$0"'
