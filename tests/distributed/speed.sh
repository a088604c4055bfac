#!/usr/bin/env bash
# Measures two ranks of one thread beside one process of two threads, with the same train.micro_batches, and beside two
# runs apart of half the batch each, which exchange nothing: what these have over the ranks is the price of exchanging.
# The three take turns, since other work on the machine changes its speed; of all steps of a kind the fastest and the
# median count. Usage: speed.sh [BUILD FOLDER [ROUNDS [MODEL ...]]]; models: regular6, unit, block, llama.
# Exit status 77, with the reason: no mpirun, or a build without MPI.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
eddy="$(cd "${1:-$here/../../build/release}" && pwd)/eddy"
rounds="${2:-3}"
models=("${@:3}")
if ((${#models[@]} == 0)); then models=(regular6 unit block llama); fi

skip() {
  echo "SKIPPED: $*"
  exit 77
}
command -v mpirun >/dev/null || skip "no mpirun (install openmpi-bin)"
"$eddy" info | grep -q '^ranks: MPI' || skip "this build has no MPI"
launcher=(mpirun --bind-to none -n 2)
if ((EUID == 0)); then launcher+=(--allow-run-as-root); fi

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for i in $(seq 20000); do echo "line $i says $((i * i % 97)) and $((i * 7 % 31))"; done >text.txt

flags_of() {
  case "$1" in
    regular6) echo "--preset shakespeare_regular_6 --model.vocab 0 --model.n_out 0 16" ;;
    unit) echo "--preset shakespeare_unit --model.vocab 0 --model.n_out 0 16" ;;
    block) echo "--model block_recurrent --data.tokenizer byte260 --data.order stream --model.layers 4 --model.dim 384" \
      "--model.heads 6 --model.head_dim 64 --model.mlp_dim 1536 --model.window 128 --model.states 128" \
      "--model.segment 512 --model.context 512 --model.recurrent_layers 2 4" ;;
    llama) echo "--preset blockwise_memory_shared_zero --model.vocab 0 --model.n_out 0 --train.sequence 256 8" ;;
    *)
      echo "speed.sh: unknown model: $1 (regular6, unit, block, llama)" >&2
      exit 2
      ;;
  esac
}
# The milliseconds of a run's steps but the first, a line each.
steps_of() { grep '"kind":"step"' "$1/metrics.jsonl" | tail -n +2 | sed 's/.*"ms":\([0-9.]*\).*/\1/'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

echo "| model | batch | 2 ranks, ms | 1 process of 2 threads, ms | apart, ms | ranks / process, best | median |"
for model in ${models[@]+"${models[@]}"}; do
  read -ra words <<<"$(flags_of "$model")"
  batch="${words[${#words[@]} - 1]}"
  common=(--data text.txt "${words[@]:0:${#words[@]}-1}" --train.steps 5 --train.eval_every 0 --train.sample_tokens 0
    --train.checkpoint_every 0 --train.log_every 1)
  : >ranks.ms
  : >process.ms
  : >apart.ms
  for ((round = 0; round < rounds; ++round)); do
    rm -rf ranks process apart-1 apart-2
    "${launcher[@]}" "$eddy" train --run ranks "${common[@]}" --train.batch "$batch" --train.micro_batches 2 \
      --threads 1 </dev/null >log 2>&1 || { cat log && exit 1; }
    steps_of ranks >>ranks.ms
    "$eddy" train --run process "${common[@]}" --train.batch "$batch" --train.micro_batches 2 --threads 2 >log 2>&1
    steps_of process >>process.ms
    "$eddy" train --run apart-1 "${common[@]}" --train.batch $((batch / 2)) --threads 1 >log 2>&1 &
    "$eddy" train --run apart-2 "${common[@]}" --train.batch $((batch / 2)) --threads 1 >log-2 2>&1
    wait
    steps_of apart-1 >>apart.ms
  done
  awk -v model="$model" -v batch="$batch" -v r="$(sort -n ranks.ms | head -1)" -v p="$(sort -n process.ms | head -1)" \
    -v a="$(sort -n apart.ms | head -1)" -v rm="$(median <ranks.ms)" -v pm="$(median <process.ms)" -v am="$(median <apart.ms)" \
    'BEGIN { printf "| %s | %d | %.0f (%.0f) | %.0f (%.0f) | %.0f (%.0f) | %.0f %% | %.0f %% |\n", model, batch, rm, r, pm, p, am, a, 100 * p / r, 100 * pm / rm }'
done
