#!/usr/bin/env bash
# A GPU that is there for half an hour: four parts of less than nine minutes each, in the order of what they tell. From
# the root of the project, with OUT a folder for what is kept; each part leaves OUT/part<N>.tgz:
#
#   OUT=out tests/gpu/first_hour.sh 1      what is understood at all, the tests, the check of the kernels
#   OUT=out tests/gpu/first_hour.sh 2      the table of training steps, then what each choice of kernels brings
#   OUT=out tests/gpu/first_hour.sh 3      why: three kernels under ncu, four test files under compute-sanitizer
#   OUT=out tests/gpu/first_hour.sh 4      real use: train, resume, generate, length
#
# Needs no network. What the machine lacks is in carry/, made by tests/gpu/carry.sh, and unpacked here: headers and
# libraries for a build, and programs that make a build needless where they hold code for this GPU.
#
# Each part builds what is not built yet. A rehearsal without a GPU takes programs that are built, and finds mistakes
# of this script and of command lines; TESTS selects files:
#
#   OUT=out BUILD=build/release TESTS="test_random test_slots" tests/gpu/first_hour.sh 1
set -uo pipefail
part="${1:?1, 2, 3 or 4}"
OUT="${OUT:?a folder for the results}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
carried="$PWD/build/carried"
export EDDY_NO_INSTALL=1 PATH="$PATH:/usr/local/cuda/bin"
limit=520 # seconds of a part
log="$(mktemp -d)"
mkdir -p "$OUT"
trap 'tar czf "$OUT/part$part.tgz" -C "$log" . && rm -rf "$log"' EXIT

say() { printf '\n== %s (%d s)\n' "$*" $SECONDS; }

# name seconds lines command [argument ...]: runs a command into a file, and shows its last lines.
run() {
  local name="$1" seconds="$2" lines="$3" status
  shift 3
  if ((limit - SECONDS < seconds)); then seconds=$((limit - SECONDS)); fi
  say "$name: $*"
  if ((seconds < 5)); then
    echo "left out: no time"
    return
  fi
  timeout "$seconds" "$@" >"$log/$name.txt" 2>&1
  status=$?
  tail -n "$lines" "$log/$name.txt"
  if ((status != 0)); then echo "status $status"; fi
}

build() {
  local capability
  capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)"
  say "build for $capability"
  cmake --preset cuda-ci -DEDDY_CUDA_ARCHITECTURES="${capability//[!0-9]/}" >"$log/configure.txt" 2>&1 || {
    tail -n 20 "$log/configure.txt"
    exit 1
  }
  timeout $((limit - SECONDS)) cmake --build --preset cuda-ci --target eddy_program test_gpu example_kernels_attention \
    >"$log/build.txt" 2>&1 || {
    grep -E -A5 "error|FAILED" "$log/build.txt" | head -n 40
    exit 1
  }
  cp "$B/.ninja_log" "$log/ninja_log.txt"
}

# Whether the carried programs find their libraries and have code for this GPU.
carried_runs() {
  local info
  info="$("$carried/eddy" info)" && grep "^cuda:" <<<"$info" | grep -v -q -E "no GPU here|this build has code for"
}

if [[ -z "${BUILD:-}" ]]; then
  if compgen -G "carry/*.tar.xz" >/dev/null && [[ ! -d "$carried" ]]; then tests/gpu/carry.sh --unpack; fi
  export CMAKE_PREFIX_PATH="$carried/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
  libraries="$carried/lib:$carried/usr/lib/$(uname -m)-linux-gnu"
  export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  if carried_runs; then BUILD="$carried"; fi
fi
B="${BUILD:-build/cuda-ci}"
eddy="$B/eddy"
if [[ -z "${BUILD:-}" ]]; then build; fi
tests="$B/bin/test_gpu"
if [[ -n "${BUILD:-}" && ! -x "$tests" ]]; then tests="$B/bin/test_gpu_emulated"; fi

case "$part" in
  1)
    # Are mma, ldmatrix, cp.async and wgmma understood at all?
    run kernels 60 40 "$B/bin/example_kernels_attention"
    run info 60 40 "$eddy" info --measure
    say "tests"
    # A process for each test, 12 at a time: one that faults costs no other, and each waits for its GPU after every
    # launch, so that an error names its kernel. What later tests stand on comes first. On an H200 all take three minutes.
    first=(test_slots test_memory test_products test_gpu_fused_products test_gpu_unit_recurrence
      test_gpu_block_recurrence test_gpu_models)
    if [[ -n "${TESTS:-}" ]]; then read -r -a first <<<"$TESTS"; fi
    names() { # files [files left out]
      "$tests" --list-test-cases "--source-file=$1" "--source-file-exclude=${2:-none}" 2>/dev/null |
        grep -v -E "^=====|^\[doctest\]"
    }
    for file in "${first[@]}"; do names "*gpu/${file%.cpp}.cpp"; done >"$log/names.txt"
    if [[ -z "${TESTS:-}" ]]; then
      names "*gpu/*" "$(printf '*gpu/%s.cpp,' "${first[@]}")" >>"$log/names.txt"
    fi
    export tests log
    # doctest takes "," as the end of a name and "?" as any character.
    # shellcheck disable=SC2016
    nl -ba -w3 -nrz "$log/names.txt" | xargs -d '\n' -P 12 -I{} timeout $((limit - SECONDS)) bash -c '
      line="{}" began=$SECONDS
      timeout 240 "$tests" --checks "--test-case=$(tr ",\"" "??" <<<"${line#*[[:space:]]}")" >"$log/${line:0:3}.txt" 2>&1
      echo "status $? $line $((SECONDS - began)) s"' >"$log/tests.txt"
    echo "$(grep -c "^status 0" "$log/tests.txt") of $(wc -l <"$log/names.txt") passed"
    grep -v "^status 0" "$log/tests.txt"
    grep -h -E "ERROR|FATAL|error:|SKIPPED" "$log"/[0-9]*.txt | sort | uniq -c | head -n 60
    run check 120 40 "$eddy" check --device cuda
    ;;
  2)
    speed=("$eddy" bench speed --seconds 2 --profile --runs)
    run speed 240 40 "${speed[@]}" "$log/speed"
    kernels() { # name rows: those rows with other kernels
      run "$1" 100 15 env EDDY_KERNELS="$1" "${speed[@]}" "$log/$1.runs" --rows "$2"
    }
    kernels attention=mma rec_fixed_skip,gpt2_124m
    kernels recurrence=fused copy_4128
    kernels products=plain rec_fixed_skip,gpt2_124m
    kernels products=fused rec_fixed_skip,gpt2_124m
    kernels attention=plain gpt2_124m
    kernels positions=products staircase_text,staircase_algorithm
    run ops 100 60 "$eddy" bench ops --device cuda --seconds 0.05
    ;;
  3)
    step=("$eddy" bench step --device cuda --precision bf16 --dropout 0 --no-capture --steps 1 --preset)
    profile() { # kernel command [argument ...]
      local kernel="$1"
      shift
      run "$kernel" 100 3 ncu --clock-control none --set full -c 1 -k "regex:$kernel" -o "$log/$kernel" "$@"
      ncu --import "$log/$kernel.ncu-rep" --page details 2>/dev/null |
        grep -E "Duration|Throughput|Stall|Occupancy|Registers|L1/TEX|Warp Cycles" | head -n 30
    }
    copy=("${step[@]}" copy --batch 64)
    EDDY_KERNELS=recurrence=fused profile accumulate_forward "${copy[@]}"
    EDDY_KERNELS=recurrence=fused profile accumulate_backward "${copy[@]}"
    profile wgmma_keys "${step[@]}" br_150m_rec_fixed_skip --batch 8 --sequence 4096
    for file in test_gpu_ops test_gpu_norms test_gpu_edges test_capture; do
      run "$file.memcheck" 75 1 compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" --plain \
        "--source-file=*gpu/$file.cpp"
    done
    ;;
  4)
    train=("$eddy" train examples/configs/quickstart.toml --data README.md --train.device cuda --train.minutes 0.3
      --train.precision bf16 --run)
    run captured 60 6 "${train[@]}" "$log/captured"
    run uncaptured 60 6 "${train[@]}" "$log/uncaptured" --train.capture off
    run resumed 60 4 "$eddy" train --resume "$log/captured" --train.minutes 0.2
    run generate 60 8 "$eddy" generate "$log/captured" --tokens 200 --device cuda
    for batch in 1 64; do
      run "generate-$batch" 100 30 "$eddy" bench generate --device cuda --batch "$batch" --seconds 10
    done
    run length 120 20 "$eddy" bench length --device cuda --seconds 0.5
    rm -f "$log"/*/*.safetensors # the runs' logs are enough
    ;;
  *)
    echo "first_hour.sh: unknown part: $part (1, 2, 3 or 4)" >&2
    exit 2
    ;;
esac
say "done"
