#!/usr/bin/env bash
# A GPU that is there for half an hour: eight parts of at most four minutes each, in the order of what they tell. From the
# root of the project, with OUT a folder for what is kept. Part N writes to OUT/part<N> as it goes: one that is cut off
# leaves what it has, whole.
#
#   OUT=out tests/gpu/first_hour.sh 0      what is here, what is understood at all, the check of the kernels
#   OUT=out tests/gpu/first_hour.sh 1      the table of training steps: each row's profile by op, products and attention alone
#   OUT=out tests/gpu/first_hour.sh 2      PyTorch beside it: Block-Recurrent
#   OUT=out tests/gpu/first_hour.sh 3      PyTorch beside it: the other rows
#   OUT=out tests/gpu/first_hour.sh 4      what is written and untimed: the other kernels of each choice, the ops
#   OUT=out tests/gpu/first_hour.sh 5      the tests, each in a process of its own
#   OUT=out tests/gpu/first_hour.sh 6      why: three kernels under ncu, four test files under compute-sanitizer
#   OUT=out tests/gpu/first_hour.sh 7      real use: train, resume, generate, length
#
# Needs no network. What the machine lacks is in carry/, made by tests/gpu/carry.sh, and unpacked here: headers and
# libraries for a build, and programs that make a build needless where they hold code for this GPU. Without them each part
# builds what is not built yet; a build that is cut off goes on in the next. Parts 2 and 3 need a Python with PyTorch, the
# one on the PATH or PYTHON, and compare with the result.json of part 1 in OUT.
#
# A rehearsal without a GPU takes programs that are built, and finds mistakes of this script and of command lines;
# TESTS selects files:
#
#   OUT=out BUILD=build/release TESTS="test_random test_slots" tests/gpu/first_hour.sh 5
set -uo pipefail
part="${1:?0 to 7}"
if [[ ! "$part" =~ ^[0-7]$ ]]; then
  echo "first_hour.sh: unknown part: $part (0 to 7)" >&2
  exit 2
fi
OUT="$(realpath -m "${OUT:?a folder for the results}")"
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
carried="$PWD/build/carried"
export EDDY_NO_INSTALL=1 PATH="$PATH:/usr/local/cuda/bin"
limit=225 # seconds of a part
log="$OUT/part$part"
mkdir -p "$log"

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
  say "build for the GPU here"
  cmake --preset cuda >"$log/configure.txt" 2>&1 || {
    tail -n 20 "$log/configure.txt"
    exit 1
  }
  timeout $((limit - SECONDS)) cmake --build --preset cuda --target eddy_program test_gpu example_kernels_attention \
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
B="${BUILD:-build/cuda}"
eddy="$B/eddy"
if [[ -z "${BUILD:-}" ]]; then build; fi
tests="$B/bin/test_gpu"
if [[ -n "${BUILD:-}" && ! -x "$tests" ]]; then tests="$B/bin/test_gpu_emulated"; fi

speed=("$eddy" bench speed --seconds 1.5 --profile --runs)

# rows: their steps by PyTorch, beside Eddy's of part 1.
peers() {
  local python="${PYTHON:-python3}" beside="$OUT/part1/speed/speed-paper/result.json"
  if ! "$python" -c "import torch" 2>"$log/torch.txt"; then
    echo "left out: $python has no PyTorch"
    return
  fi
  if [[ ! -f "$beside" ]]; then beside=""; fi
  run peers $limit 40 "$python" tests/peers/training_step.py --device cuda --compile --budget $((limit - SECONDS - 40)) \
    --rows "$1" --json "$log/gpu-peers.json" ${beside:+--beside "$beside"}
}

case "$part" in
  0)
    run info 60 40 "$eddy" info --measure
    # Are mma, ldmatrix, cp.async and wgmma understood at all?
    run kernels 60 40 "$B/bin/example_kernels_attention"
    run check 120 40 "$eddy" check --device cuda
    ;;
  1)
    run speed $limit 40 "${speed[@]}" "$log/speed"
    ;;
  2)
    peers rec_fixed_skip,slide_13l,xl_2048
    ;;
  3)
    peers regular_6,gpt2_124m,memory_llama,copy_4128,unit_256,unit_1024,staircase_algorithm,staircase_text
    ;;
  4)
    kernels() { # name rows: those rows with other kernels
      run "$1" 60 15 env EDDY_KERNELS="$1" "${speed[@]}" "$log/$1.runs" --rows "$2"
    }
    kernels positions=products staircase_text,staircase_algorithm
    kernels unit_recurrence=phases unit_256,unit_1024
    kernels wide_attention=tma rec_fixed_skip,slide_13l,xl_2048
    kernels attention_backward=fused rec_fixed_skip,slide_13l,xl_2048,gpt2_124m
    kernels algorithms=timed unit_256,regular_6,memory_llama
    kernels recurrence=fused copy_4128
    for recurrence in plain fused; do
      run "cifar-$recurrence" 30 15 env EDDY_KERNELS="recurrence=$recurrence" "$eddy" bench step --device cuda \
        --precision bf16 --dropout 0 --preset cifar_block --batch 256 --json "$log/cifar-$recurrence.json"
    done
    kernels gelu_products=fused gpt2_124m,regular_6
    kernels positions=products,unit_recurrence=phases,wide_attention=tma,attention_backward=fused,gelu_products=fused \
      staircase_text,unit_256,rec_fixed_skip,slide_13l,gpt2_124m,regular_6
    kernels products=plain rec_fixed_skip,gpt2_124m
    kernels attention=mma rec_fixed_skip,gpt2_124m
    kernels attention=plain gpt2_124m
    run ops 100 60 "$eddy" bench ops --device cuda --seconds 0.05
    for attention in plain mma; do
      run "tf32-$attention" 60 15 env EDDY_KERNELS="tf32_attention=$attention" "$eddy" bench step --device cuda \
        --precision tf32 --preset br_150m_slide_13l --batch 2 --json "$log/tf32-$attention.json"
    done
    ;;
  5)
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
    nl -ba -w3 -nrz "$log/names.txt" | timeout $((limit - SECONDS)) xargs -d '\n' -P 12 -I{} bash -c '
      line="{}" began=$SECONDS
      timeout 200 "$tests" --checks "--test-case=$(tr ",\"" "??" <<<"${line#*[[:space:]]}")" >"$log/${line:0:3}.txt" 2>&1
      echo "status $? $line $((SECONDS - began)) s"' >"$log/tests.txt"
    echo "$(grep -c "^status 0" "$log/tests.txt") of $(wc -l <"$log/names.txt") passed"
    grep -v "^status 0" "$log/tests.txt"
    grep -h -E "ERROR|FATAL|error:|SKIPPED" "$log"/[0-9]*.txt | sort | uniq -c | head -n 60
    ;;
  6)
    step=("$eddy" bench step --device cuda --precision bf16 --dropout 0 --no-capture --steps 1 --preset)
    profile() { # kernel command [argument ...]
      local kernel="$1"
      shift
      run "$kernel" 60 3 ncu --clock-control none --set full -c 1 -k "regex:$kernel" -o "$log/$kernel" "$@"
      ncu --import "$log/$kernel.ncu-rep" --page details 2>/dev/null |
        grep -E "Duration|Throughput|Stall|Occupancy|Registers|L1/TEX|Warp Cycles" | head -n 30
    }
    copy=("${step[@]}" copy --batch 64)
    EDDY_KERNELS=recurrence=fused profile block_forward "${copy[@]}"
    EDDY_KERNELS=recurrence=fused profile block_backward "${copy[@]}"
    profile wgmma_keys "${step[@]}" br_150m_rec_fixed_skip --batch 8 --sequence 4096
    for file in test_gpu_ops test_gpu_norms test_gpu_edges test_capture; do
      run "$file.memcheck" 60 1 compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" --plain \
        "--source-file=*gpu/$file.cpp"
    done
    ;;
  7)
    train=("$eddy" train examples/configs/quickstart.toml --data README.md --train.device cuda --train.minutes 0.3
      --train.precision bf16 --run)
    run captured 40 6 "${train[@]}" "$log/captured"
    run uncaptured 40 6 "${train[@]}" "$log/uncaptured" --train.capture off
    run resumed 40 4 "$eddy" train --resume "$log/captured" --train.minutes 0.2
    run generate 30 8 "$eddy" generate "$log/captured" --tokens 200 --device cuda
    for batch in 1 64; do
      run "generate-$batch" 40 30 "$eddy" bench generate --device cuda --batch "$batch" --seconds 10
    done
    run length 60 20 "$eddy" bench length --device cuda --seconds 0.5
    rm -f "$log"/*/*.safetensors # the runs' logs are enough
    ;;
esac
say "done"
