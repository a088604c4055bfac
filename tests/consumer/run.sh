#!/usr/bin/env bash
# Builds and runs projects of users: one that finds an installed Eddy, and a parent project that builds Eddy as a part of
# itself, by add_subdirectory and by FetchContent. All happens in a temporary folder.
#
#   tests/consumer/run.sh BUILD_DIR
set -euo pipefail

if (($# != 1)) || [[ ! -f "$1/CMakeCache.txt" ]]; then
  echo "usage: tests/consumer/run.sh BUILD_DIR (a configured and built folder, such as build/release)" >&2
  exit 2
fi
build="$(cd "$1" && pwd)"
source_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
temporary="$(mktemp -d)"
trap 'rm -rf "$temporary"' EXIT

# ---- find_package ----
cmake --install "$build" --prefix "$temporary/prefix" >/dev/null
bash -n "$temporary/prefix/share/bash-completion/completions/eddy"
[[ -s "$temporary/prefix/share/zsh/site-functions/_eddy" ]]
"$temporary/prefix/bin/eddy" info | grep -x "examples: $temporary/prefix/share/eddy"
[[ -s "$temporary/prefix/share/eddy/configs/quickstart.toml" ]]
examples="$source_dir/../../examples"
cmake -G Ninja -S "$source_dir" -B "$temporary/build" -DCMAKE_BUILD_TYPE=Release -DOWN_CELL="$examples/07_own_cell.cpp" \
  -DCMAKE_PREFIX_PATH="$temporary/prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
cmake --build "$temporary/build"
cd "$temporary" && build/consumer && build/own_cell
build/own_cell keys minimal_gate | grep -q "model.gate_start"
build/own_cell reproduce "$examples/07_own_cell.toml" --scale tiny | grep "text: one gate (own)"

# ---- a part that find_package was not asked for: the error names its component ----
mkdir unasked
check_refusal() { # the words after find_package(eddy, and a part of the error
  cat >unasked/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(unasked LANGUAGES CXX)
find_package(eddy $1)
add_library(unasked INTERFACE)
target_link_libraries(unasked INTERFACE eddy::train)
END
  local refusal
  if refusal="$(cmake -G Ninja -S unasked -B unasked/build -DCMAKE_PREFIX_PATH="$temporary/prefix" 2>&1)" ||
    [[ "$(tr -s ' \n' ' ' <<<"$refusal")" != *"unasked links eddy::train, which is of the component train: $2"* ]]; then
    echo "run.sh: the error does not say of eddy::train: $2: $refusal" >&2
    exit 1
  fi
}
check_refusal "CONFIG REQUIRED" "find_package(eddy COMPONENTS train)"
# ---- the same, asked for, where it was not built ----
targets="$(find "$temporary/prefix" -name eddyTrainTargets.cmake)"
mv "$targets" kept.cmake
check_refusal "COMPONENTS train" "this Eddy was built without it"
mv kept.cmake "$targets"

# ---- eddy learn, installed: an exercise of plain C++, one that links Eddy, one that needs the tree ----
learn=("$temporary/prefix/bin/eddy" learn)
for exercise in softplus training_loop; do
  "${learn[@]}" "$exercise" >/dev/null
  "${learn[@]}" answer "$exercise" >answer.cpp
  cp answer.cpp learn/*"_$exercise.cpp"
  "${learn[@]}" check "$exercise"
done
"${learn[@]}" cuda_kernel >/dev/null
if refusal="$("${learn[@]}" check cuda_kernel 2>&1)" || [[ "$refusal" != *"source tree"* ]]; then
  echo "run.sh: eddy learn does not say what the exercise cuda_kernel needs: $refusal" >&2
  exit 1
fi

# ---- add_subdirectory, then FetchContent, in one build folder: Eddy is compiled once ----
# Only what the library needs may be asked for.
unneeded=()
for package in CLI11 SentencePiece doctest; do unneeded+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"); done
mkdir parent
cp "$source_dir"/parent/* "$source_dir/main.cpp" parent
ln -s "$source_dir/../.." parent/eddy
for by_fetch in OFF ON; do
  cmake -G Ninja -S parent -B parent/build -DBY_FETCH=$by_fetch ${unneeded[@]+"${unneeded[@]}"}
  cmake --build parent/build
  parent/build/consumer
done
# The parent names no build type, and Eddy is optimised all the same.
if ninja -C parent/build -t commands eddy/libeddy.a | grep -e ' -c ' | grep -v -e ' -O[123] '; then
  echo "run.sh: Eddy's own files above are not optimised in a parent without a build type" >&2
  exit 1
fi
for entry in bin include eddyConfig.cmake compile_commands.json; do
  if [[ -e "parent/build/$entry" ]]; then
    echo "run.sh: Eddy put $entry into its parent's build" >&2
    exit 1
  fi
done
