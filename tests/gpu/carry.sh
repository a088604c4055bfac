#!/usr/bin/env bash
# What a GPU machine without a network lacks, gathered into carry/, which git ignores: two archives of together at most
# 64 MiB.
#
#   tests/gpu/carry.sh                    carry/dependencies.tar.xz: headers and libraries that a build needs
#   tests/gpu/carry.sh build/cuda-ci      also carry/programs.tar.xz: the programs of that build, so that none is needed
#   tests/gpu/carry.sh --unpack           there: into build/carried (it needs python3, and no xz)
#
# Needs a Debian or Ubuntu on which cmake/install_dependencies.sh has run, of the same release as the GPU machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
most=$((64 << 20))
packages=(libsentencepiece-dev libsentencepiece0 libcli11-dev libfmt-dev libfmt9 doctest-dev nlohmann-json3-dev
  libtomlplusplus-dev libxxhash-dev libopenblas-dev libopenblas-pthread-dev libopenblas0-pthread libgfortran5 libquadmath0)

unpack() {
  local archive
  for archive in carry/*.tar.xz; do
    echo "carry.sh: $archive into build/carried"
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$archive" build/carried
  done
  # Tests read files of the tree where it was built.
  local tree
  if [[ -f build/carried/tree ]] && tree="$(cat build/carried/tree)" && [[ ! -e "$tree" ]]; then
    { mkdir -p "$(dirname "$tree")" && ln -s "$PWD" "$tree"; } ||
      echo "carry.sh: $tree cannot be made a link to this tree: tests with golden vectors will fail" >&2
  fi
}

# The files of the packages below include/, lib/ and share/cmake/, without static libraries.
dependencies() { # folder
  local package file installed=()
  for package in "${packages[@]}"; do
    if dpkg -L "$package" >/dev/null 2>&1; then installed+=("$package"); else echo "carry.sh: without $package" >&2; fi
  done
  dpkg -L ${installed[@]+"${installed[@]}"} | sort -u | grep -E '^/usr/(include|lib|share/(cmake|doctest))/' | grep -v -E '\.a$|/doc/' |
    while read -r file; do
      if [[ -f "$file" || -L "$file" ]]; then echo "${file#/usr/}"; fi
    done >"$1.files"
  mkdir -p "$1/usr"
  tar cf - -C /usr --files-from "$1.files" | tar xf - -C "$1/usr"
  # Names that the alternatives system keeps as links to what was copied.
  for file in libopenblas.so libopenblas.so.0; do
    ln -sf "openblas-pthread/$file" "$1/usr/lib/$(uname -m)-linux-gnu/$file"
  done
}

# Stripped programs, the libraries that they load besides those of the system and of CUDA, and where the tree was.
programs() { # folder build
  local program
  mkdir -p "$1/bin" "$1/lib"
  for program in eddy bin/test_gpu bin/example_kernels_attention; do
    if [[ ! -x "$2/$program" ]]; then
      echo "carry.sh: $2/$program is not built (targets eddy_program, test_gpu, example_kernels_attention)" >&2
      exit 1
    fi
    strip -o "$1/$program" "$2/$program"
  done
  ldd "$2/eddy" "$2/bin/test_gpu" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcu[a-zA-Z]*)\.so' |
    xargs -I{} cp -L {} "$1/lib/"
  pwd >"$1/tree"
}

if [[ "${1:-}" == --unpack ]]; then
  unpack
  exit
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
rm -rf carry
mkdir -p carry
dependencies "$folder/dependencies"
tar cJf carry/dependencies.tar.xz -C "$folder/dependencies" .
if [[ -n "${1:-}" ]]; then
  programs "$folder/programs" "$1"
  tar cJf carry/programs.tar.xz -C "$folder/programs" .
fi
ls -l carry
bytes="$(cat carry/* | wc -c)"
if ((bytes > most)); then
  echo "carry.sh: $bytes bytes, and at most $most are carried" >&2
  exit 1
fi
