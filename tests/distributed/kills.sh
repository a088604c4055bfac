#!/usr/bin/env bash
# Kills ranks of a run at random: one of two or four, at a moment by chance, again and again. Each time the run goes on
# from its last checkpoint, on another number of ranks, with the optimizer's state shared or not. In the end its
# checkpoint must have the bytes of an unbroken run, and no restart may have taken 10 s from the kill to the next step.
# Usage: kills.sh [BUILD FOLDER [KILLS [SEED]]]. Exit status 77, with the reason: no mpirun, or a build without MPI.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
eddy="$(cd "${1:-$here/../../build/release}" && pwd)/eddy"
kills="${2:-50}" limit=10
RANDOM="${3:-$$}"
echo "seed ${3:-$$}"

skip() {
  echo "SKIPPED: $*"
  exit 77
}
command -v mpirun >/dev/null || skip "no mpirun (install openmpi-bin)"
"$eddy" info | grep -q '^ranks: MPI' || skip "this build has no MPI"
launcher=(mpirun --oversubscribe --bind-to none)
if ((EUID == 0)); then launcher+=(--allow-run-as-root); fi

folder="$(mktemp -d)"
pid=""
cleanup() {
  if [[ -n "$pid" ]]; then kill -TERM "$pid" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap cleanup EXIT
cd "$folder"
export EDDY_NUM_THREADS=1

for i in $(seq 400); do echo "line $i says $((i * i % 97)) and $((i * 7 % 31))"; done >text.txt
sizes=(--data text.txt --model.model block_recurrent --data.order stream --model.dim 16 --model.heads 2
  --model.context 16 --model.dropout 0.1 --train.batch 8 --train.micro_batches 4 --train.eval_every 0
  --train.sample_tokens 0)
# Has a command after the first $1 trained a step?
stepped() {
  awk -v before="$1" '/"kind":"command"/ { ++commands; steps = 0 } /"kind":"step"/ { ++steps }
    END { exit !(commands > before && steps > 0) }' run/metrics.jsonl 2>/dev/null
}
commands_of_run() { grep -s -c '"kind":"command"' run/metrics.jsonl || [[ -f run/metrics.jsonl ]] || echo 0; }
now() { date +%s%N; }
fail() {
  echo "$*"
  tail -c 2000 log
  exit 1
}

slowest=0 killed=0
for ((kill_number = 0; kill_number <= kills; ++kill_number)); do
  ranks=$((RANDOM % 2 == 0 ? 2 : 4)) shard=$((RANDOM % 2))
  command=(train --run run "${sizes[@]}" --train.checkpoint_every 5 --train.log_every 1 --train.steps 1000000)
  commands=0
  if [[ -d run/checkpoints ]]; then
    command=(train --resume run)
    commands="$(commands_of_run)"
  fi
  command+=(--train.shard_optimizer "$([[ $shard == 1 ]] && echo true || echo false)")
  "${launcher[@]}" -n "$ranks" "$eddy" "${command[@]}" </dev/null >log 2>&1 &
  pid=$!
  begun="$(now)"
  until stepped "$commands"; do
    kill -0 "$pid" 2>/dev/null || fail "the run ended by itself on $ranks ranks"
    (($(now) - begun < 60000000000)) || fail "no step within 60 s on $ranks ranks"
    sleep 0.02
  done
  if ((killed > 0)); then
    took=$((($(now) - died) / 1000000))
    if ((took > slowest)); then slowest=$took; fi
  fi
  if ((kill_number == kills)); then break; fi
  sleep "$((RANDOM % 2)).$((RANDOM % 90 + 10))"
  victim=$((RANDOM % ranks))
  for child in $(cat "/proc/$pid/task/$pid/children"); do
    if tr '\0' '\n' <"/proc/$child/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$victim"; then
      died="$(now)"
      kill -KILL "$child"
    fi
  done
  wait "$pid" && fail "mpirun ended well though rank $victim was killed"
  pid=""
  killed=$((killed + 1))
done
kill -USR1 "$pid"
wait "$pid" || true
pid=""

step="$(sed 's/step-//' run/checkpoints/latest)"
"$eddy" train --run unbroken "${sizes[@]}" --train.checkpoint_every 0 --train.steps "$step" >unbroken.log
for file in model optimizer recurrent; do
  cmp "run/checkpoints/step-$step/$file.safetensors" "unbroken/checkpoints/step-$step/$file.safetensors"
done
echo "$killed kills of ranks: at step $step the bytes of an unbroken run; at most $slowest ms from a kill to the next step"
((slowest < limit * 1000)) || fail "more than $limit s"
