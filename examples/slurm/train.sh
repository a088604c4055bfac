#!/usr/bin/env bash
# A run on several hosts under Slurm. It saves before its time is over, and goes on in a new job:
#
#   sbatch examples/slurm/train.sh
#
#SBATCH --job-name=eddy
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

run="${RUN:-runs/slurm}"
config="${CONFIG:-examples/configs/shakespeare-unit.toml}"

if [[ -e "$run/checkpoints/latest" ]]; then
  arguments=(--resume "$run")
else
  arguments=("$config" --run "$run" --train.micro_batches "${MICRO_BATCHES:-${SLURM_NTASKS:-${SLURM_JOB_NUM_NODES:-4}}}")
fi

# SIGUSR1 comes 300 s before the time is over, to this script alone: it passes it on. Rank 0 saves, and all end.
# srun does not take the number of CPUs from sbatch.
cpus="${SLURM_CPUS_PER_TASK:-1}"
srun --mpi=pmix --cpus-per-task="$cpus" build/release/eddy train "${arguments[@]}" --train.threads "$cpus" &
step=$!
ending=""
trap 'ending=1; kill -USR1 "$step"' USR1

status=0
wait "$step" || status=$?
while kill -0 "$step" 2>/dev/null; do # the trap ended the wait, not the run
  status=0
  wait "$step" || status=$?
done
if [[ -n "$ending" && "$status" -eq 130 ]]; then # interrupted and saved
  scontrol requeue "$SLURM_JOB_ID"
  exit 0
fi
exit "$status"
