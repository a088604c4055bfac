#!/usr/bin/env bash
# Applies the differences of docs/own-models.md in turn to one copy of the tree, builds it after each, and runs the commands
# that the page gives for it. The copy is built once as it is; a difference compiles a few files.
#
#   tests/variations.sh [FOLDER]      FOLDER for the copy; without it a temporary one that is removed
set -euo pipefail

source_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
if (($# > 0)); then
  copy="$1"
  mkdir -p "$copy"
  if [[ -n "$(ls -A "$copy")" ]]; then # what an earlier copy had built would pass for what is built now
    echo "variations.sh: $copy is not empty (name a new folder)" >&2
    exit 1
  fi
else
  copy="$(mktemp -d)"
  trap 'rm -rf "$copy"' EXIT
fi

# The files of the tree, without what was built.
tar -C "$source_dir" --exclude=./build --exclude=./.git --exclude=./runs -cf - . | tar -C "$copy" -xf -
cd "$copy"
cmake --preset release -DEDDY_BUILD_TESTS=OFF
cmake --build --preset release --target eddy_program example_07_own_cell

# Cuts the page at its differences: number.diff, and number.commands with what is indented behind it.
mkdir -p .variations
awk '
  /^```diff$/ { ++n; inside = 1; next }
  /^```/ { inside = 0; next }
  inside { print > (".variations/" n ".diff") }
  !inside && n && /^    / { sub(/^    /, ""); print > (".variations/" n ".commands") }
' docs/own-models.md

number=1
while [[ -f ".variations/$number.diff" ]]; do
  echo "== variation $number"
  patch --strip=1 --forward <".variations/$number.diff"
  bash -euo pipefail ".variations/$number.commands"
  number=$((number + 1))
done
if ((number < 6)); then
  echo "variations.sh: docs/own-models.md has $((number - 1)) differences (five)" >&2
  exit 1
fi
echo "all $((number - 1)) variations apply, build and run"
