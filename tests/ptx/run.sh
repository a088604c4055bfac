#!/usr/bin/env bash
# Runs the code that nvcc emits without a GPU: makes the PTX of all kernels, and runs the launches that the emulated tests
# recorded again from it (README.md). Needs nvcc and a release build. Without records it runs the emulated tests first.
#
#   tests/ptx/run.sh                  all launches, and the planted faults
#   tests/ptx/run.sh --verbose        with a line for each kernel
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

launches=build/release/launches
cmake --preset cuda-ci >/dev/null
cmake --build --preset cuda-ci --target eddy_ptx eddy_ptx_90a
cmake --build --preset release --target replay_ptx
# The names of these files hold no blanks.
kernels=""
for file in $(find build/cuda-ci/CMakeFiles/eddy_ptx*.dir/cuda -name '*.ptx' | sort); do
  source="${file#*.dir/}"
  if [[ -f "${source%.ptx}.cu" ]]; then kernels+=" $file"; fi # a build keeps the PTX of sources that are gone
done
# shellcheck disable=SC2046
tests/ptx/fences.sh $(find build/cuda-ci/CMakeFiles/eddy_ptx_90a.dir -name '*.ptx' | sort)
if [[ ! -d "$launches" ]]; then
  mkdir -p "$launches"
  EDDY_RECORD_LAUNCHES="$PWD/$launches" ctest --preset release -L '^gpu_emulated$'
fi
# shellcheck disable=SC2086
build/release/bin/replay_ptx --launches "$launches" "$@" $kernels
# shellcheck disable=SC2086
build/release/bin/replay_ptx --launches "$launches" --faults $kernels
