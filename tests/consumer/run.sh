#!/usr/bin/env bash
# Installs a finished build into a temporary folder, then configures, builds and runs the consumer project against it.
#
#   tests/consumer/run.sh BUILD_DIR
set -euo pipefail

if (($# != 1)) || [[ ! -f "$1/CMakeCache.txt" ]]; then
  echo "usage: tests/consumer/run.sh BUILD_DIR (a configured and built folder, such as build/release)" >&2
  exit 2
fi
build="$(cd "$1" && pwd)"
source_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
temporary="$(mktemp --directory)"
trap 'rm -rf "$temporary"' EXIT

cmake --install "$build" --prefix "$temporary/prefix" >/dev/null
bash -n "$temporary/prefix/share/bash-completion/completions/eddy"
[[ -s "$temporary/prefix/share/zsh/site-functions/_eddy" ]]
cmake -G Ninja -S "$source_dir" -B "$temporary/build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$temporary/prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
cmake --build "$temporary/build"
cd "$temporary" && build/consumer
