#!/usr/bin/env bash
# The peers of training steps on a CPU: that each is Eddy's model (parameters, loss, gradients in f64), and that the program
# times them and writes its table. Skipped (77) without a Python that has PyTorch: python3, or PYTHON.
#
#   tests/peers/run.sh build/release
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
build="$(realpath "${1:?a build folder}")"
cd "$(dirname "${BASH_SOURCE[0]}")"
python="${PYTHON:-python3}"
if ! why="$("$python" -c 'import torch' 2>&1)"; then
  echo "skipped: $python has no PyTorch: ${why##*$'\n'}"
  exit 77
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"$python" training_step.py --check "$build/eddy"
"$build/eddy" bench speed --scale small --rows regular_6,copy_4128 --seconds 0.01 --runs "$folder" >/dev/null
"$python" training_step.py --scale small --device cpu --rows regular_6,copy_4128 --steps 2 \
  --beside "$folder/speed-small/result.json" --json "$folder/peers.json"
"$python" - "$folder/peers.json" <<'END'
import json, sys

table = json.load(open(sys.argv[1]))["measured"][0]
assert table["rows_are"] == ["regular_6", "copy_4128"], table
assert all(len(row) == len(table["columns"]) and float(row[-1]) > 0 for row in table["rows"]), table
END
# A budget that is used up begins nothing, and says so.
if "$python" training_step.py --scale small --device cpu --rows regular_6 --budget 0 >"$folder/none.txt"; then exit 1; fi
grep -q "not begun within 0 seconds" "$folder/none.txt"
