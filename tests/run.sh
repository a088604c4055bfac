#!/usr/bin/env bash
# Runs the tests: an optimised build of the host's half, and every suite of it but those labelled slow.
#
#   tests/run.sh               this, in 10 to 18 minutes on two cores
#   tests/run.sh --all         also what checks the GPU's half without one and finds what a test cannot: the emulated GPU,
#                              sanitizers, every file read by itself where there is clang 19, and where there is nvcc a
#                              CUDA build, whose kernels run again from PTX. Continuous integration runs this; with CI=1
#                              warnings are errors, and the program is built on a fresh Debian 13 and trains there.
#                              Neither runs what trains or kills for minutes: ctest --test-dir build/release -L slow
#   tests/run.sh --sanitize    the sanitizers alone
#   tests/run.sh --gpu         the tests of a CUDA build on the GPU, alone; without a GPU they are built and skipped
#   tests/run.sh --gpu --sanitize    the same under compute-sanitizer, where every allocation stands by itself
#   tests/run.sh --gpu --measure     instead of the tests, every measurement of the GPU, into build/cuda/measured
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root" # presets are looked up in the working directory
started=$SECONDS
heading() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

all=false gpu=false sanitize=false measure=false
for option in "$@"; do
  case "$option" in
    --all) all=true ;;
    --gpu) gpu=true ;;
    --sanitize) sanitize=true ;;
    --measure) measure=true ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "run.sh: unknown option: $option (--all, --sanitize, --gpu, --measure)" >&2
      exit 2
      ;;
  esac
done
if $all && { $gpu || $sanitize; }; then
  echo "run.sh: --all excludes --gpu and --sanitize" >&2
  exit 2
fi
if $measure && { ! $gpu || $sanitize; }; then
  echo "run.sh: --measure goes with --gpu, and without --sanitize" >&2
  exit 2
fi

# The path of nvcc, or failure.
find_nvcc() {
  command -v nvcc && return
  [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc
}

build() { # preset [target ...]
  local preset="$1" && shift
  # A newer compiler's new warning must not stop a user; it stops continuous integration.
  local strict=()
  if [[ -n "${CI:-}" && "$preset" == release ]]; then strict=(-DEDDY_WERROR=ON); fi
  cmake --preset "$preset" ${strict[@]+"${strict[@]}"}
  if (($# > 0)); then
    cmake --build --preset "$preset" --target "$@"
  else
    cmake --build --preset "$preset"
  fi
}

# The suites that the short run leaves out, and the seconds that each takes on two cores of a Zen 4.
left_out() {
  cat <<'END'
gpu_emulated  the GPU's kernels and tests on a GPU that the host emulates (410 s, and 150 s to build)
consumer      projects that build, install and link Eddy, each by itself (97 s)
END
}

test_host() {
  heading "Build"
  build release host_tests
  heading "Tests"
  ctest --test-dir build/release --output-on-failure --no-tests=error -j 2 --label-exclude "^(slow|$(left_out | awk '{ print $1 }' | paste -sd '|'))$"
}

# What the short run did not do, in the words of --all.
name_the_rest() {
  heading "Left out: tests/run.sh --all adds these"
  left_out
  cat <<'END'
sanitizers    tests of tensor/ and autograd/ for addresses, undefined behaviour and leaks, the thread pool for races (170 s)
clang 19      every file read by itself, by a second compiler, where it is installed (300 s)
nvcc          a CUDA build, and its kernels run again from PTX, where it is installed (600 s)
END
  echo "Neither runs what trains or kills for minutes: ctest --test-dir build/release -L slow"
}

test_release() {
  heading "Release build"
  build release
  heading "Release tests"
  # The emulated GPU records what it launches, for tests/ptx.
  if find_nvcc >/dev/null; then
    export EDDY_RECORD_LAUNCHES="$root/build/release/launches"
    rm -rf "$EDDY_RECORD_LAUNCHES"
    mkdir -p "$EDDY_RECORD_LAUNCHES"
  fi
  ctest --preset release
}

test_sanitizers() {
  heading "Address, undefined behaviour and leak sanitizers: build of the tests of tensor and autograd"
  build sanitize test_tensor test_autograd test_cuda
  heading "Address, undefined behaviour and leak sanitizers: tests of tensor and autograd"
  local suite
  for suite in test_tensor test_autograd test_cuda; do
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
      "build/sanitize/bin/$suite"
  done

  heading "Thread sanitizer: build of the thread pool tests"
  build tsan test_thread_pool
  heading "Thread sanitizer: thread pool tests"
  # The thread sanitizer of GCC 12 stops at the address layout of newer kernels; without randomisation it does not.
  local fixed_layout=()
  if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_layout=(setarch "$(uname -m)" -R); fi
  TSAN_OPTIONS=halt_on_error=1 ${fixed_layout[@]+"${fixed_layout[@]}"} build/tsan/bin/test_thread_pool
}

# A second compiler reads every file by itself. Continuous integration installs it.
test_parse() {
  if [[ -n "${CI:-}" ]]; then cmake/install_dependencies.sh clang-19 || echo "run.sh: clang-19 cannot be installed" >&2; fi
  if ! command -v "${CLANG:-clang++-19}" >/dev/null; then
    heading "Every file by itself: skipped: clang++-19 is not installed"
  else
    heading "Every file by itself, read by ${CLANG:-clang++-19}"
    tests/parse.sh
  fi
}

# What a new dependency, or a new use of an old one, breaks on a newer system.
test_newer_system() {
  [[ -n "${CI:-}" ]] || return 0
  heading "Debian 13: the program, and ten seconds of training"
  cmake/install_dependencies.sh debootstrap || echo "run.sh: debootstrap cannot be installed" >&2
  tests/ports.sh quick
}

build_cuda() {
  local nvcc
  if ! nvcc="$(find_nvcc)"; then
    heading "CUDA: skipped: no nvcc on the PATH or in /usr/local/cuda/bin"
  else
    heading "CUDA: build for one architecture with $nvcc"
    build cuda-ci eddy_cuda eddy_cuda_90a
    heading "CUDA: the launches of the emulated tests again, by compiled code"
    tests/ptx/run.sh
  fi
}

# Each into a file of its own; one that fails does not keep the others from running.
measure_gpu() { # capability, or nothing
  if [[ -z "$1" ]]; then
    heading "CUDA: SKIPPED: the measurements need a GPU, and nvidia-smi sees none"
    return
  fi
  local bin=build/cuda folder=build/cuda/measured failed=()
  mkdir -p "$folder"
  measured() { # name command [argument ...]
    local name="$1" && shift
    heading "CUDA: $name: $*"
    "$@" 2>&1 | tee "$folder/$name.txt" || failed+=("$name")
  }
  measured info "$bin/eddy" info --measure
  measured ops "$bin/eddy" bench ops --device cuda --json "$folder/ops.json"
  measured attention "$bin/bin/example_kernels_attention"
  local speed=("$bin/eddy" bench speed --profile --seconds 2 --runs)
  measured speed "${speed[@]}" "$folder/speed"
  # What each choice brings: the table again with one kernel other than the program's.
  local kernels choices=(plain) choice names fastest
  while read -r choice names fastest; do
    for kernels in ${names//|/ }; do
      [[ "$kernels" == "$fastest" || "$choice" == tf32_attention ]] || choices+=("$choice=$kernels")
    done
  done < <(sed -nE 's/^  ROW\(([a-z0-9_]+), [a-z0-9_]+, "([a-z0-9|]+)", ([a-z]+),.*/\1 \2 \3/p' ops/core/kernel_choices.h)
  for kernels in "${choices[@]}"; do
    measured "speed-${kernels/=/-}" env EDDY_KERNELS="$kernels" "${speed[@]}" "$folder/speed-${kernels/=/-}"
  done
  for kernels in plain mma; do
    measured "step-tf32-attention-$kernels" env EDDY_KERNELS="tf32_attention=$kernels" "$bin/eddy" bench step \
      --preset br_150m_slide_13l --batch 8 --device cuda --precision tf32 --profile \
      --json "$folder/step-tf32-attention-$kernels.json"
  done
  measured step-cifar "$bin/eddy" bench step --preset cifar_block --batch 256 --device cuda --profile \
    --json "$folder/step-cifar.json"
  local batch
  for batch in 1 64; do
    measured "generate-$batch" "$bin/eddy" bench generate --device cuda --batch "$batch" \
      --json "$folder/generate-$batch.json" --html "$folder/generate-$batch.html"
  done
  measured length "$bin/eddy" bench length --device cuda --json "$folder/length.json" --html "$folder/length.html"
  if ((${#failed[@]} > 0)); then
    echo "run.sh: failed: ${failed[*]}; what they printed is in $folder" >&2
    exit 1
  fi
}

# All three checks, whatever the first ones find.
sanitize_gpu() {
  local tool failed=()
  tool="$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)"
  checked() { # check files-left-out [option ...]
    local check="$1" left_out="$2" && shift 2
    heading "CUDA: GPU tests under compute-sanitizer's $check"
    "$tool" --tool "$check" --error-exitcode 1 "$@" build/cuda/bin/test_gpu --plain \
      "--source-file-exclude=$left_out" || failed+=("$check")
  }
  # Calls that fail are the library's own business: it checks them all, and a test asks for too much memory.
  # Measurements, and hundreds of training steps, launch nothing that the other tests do not, thousands of times.
  # The products are cuBLASLt's kernels: the slow checks leave their test out too.
  local repeats='*gpu/test_gpu_bench.cpp,*gpu/test_gpu_models_bf16.cpp,*gpu/test_gpu_models_choices.cpp'
  checked memcheck "$repeats" --report-api-errors no --leak-check full
  checked racecheck "$repeats,*gpu/test_products.cpp"
  checked initcheck "$repeats,*gpu/test_products.cpp"
  if ((${#failed[@]} > 0)); then
    echo "run.sh: compute-sanitizer failed: ${failed[*]}" >&2
    exit 1
  fi
}

test_gpu() {
  if ! find_nvcc >/dev/null; then
    echo "run.sh: --gpu needs nvcc on the PATH or in /usr/local/cuda/bin" >&2
    exit 1
  fi
  local capability preset=cuda
  capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -m 1 '^[0-9]' || true)"
  # Without a GPU one architecture is enough for tests that are skipped.
  if [[ -z "$capability" ]]; then preset=cuda-ci; fi
  heading "CUDA: build for ${capability:-9.0: nvidia-smi sees no GPU}"
  build "$preset" test_gpu example_kernels_attention eddy_program
  # Where there is a GPU, tests that skip must not pass for tests that ran.
  local skipped
  skipped="$("build/$preset/bin/test_gpu" '--source-file=*gpu/test_slots.cpp' 2>&1 | grep '^SKIPPED' || true)"
  if [[ -n "$capability" && -n "$skipped" ]]; then
    echo "run.sh: nvidia-smi sees a GPU that programs cannot use: ${skipped#SKIPPED: *: }" >&2
    exit 1
  fi
  if $measure; then
    measure_gpu "$capability"
  elif $sanitize && [[ -n "$capability" ]]; then
    sanitize_gpu
  else
    heading "CUDA: GPU tests"
    ctest --test-dir "build/$preset" -L '^gpu$' --no-tests=error --verbose # tests that pass print tables as well
  fi
}

heading "Dependencies"
cmake/install_dependencies.sh
# Continuous integration also reads the comments of the public names.
if [[ -n "${CI:-}" ]]; then cmake/install_dependencies.sh doxygen || echo "run.sh: doxygen cannot be installed" >&2; fi
if $gpu; then
  test_gpu
elif $sanitize; then
  test_sanitizers
elif $all; then
  test_release
  test_sanitizers
  test_parse
  build_cuda
  test_newer_system
else
  test_host
  name_the_rest
fi
heading "All passed"
