#!/usr/bin/env bash
# The page of examples/browser, made with models that were trained for two steps: in Node its functions must give the logits and
# the losses of the native program, and in a browser without a screen the page must work.
#
#   tests/browser/run.sh BUILD_DIR [PAGE [PICTURES]]     with PAGE that one is compared and opened, with PICTURES drawn there
#
# Exit status 77, with the reason: no Emscripten or no Node.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
build="$(cd "$1" && pwd)"
skip() {
  echo "SKIPPED: $*"
  exit 77
}
command -v emcmake >/dev/null || skip "there is no Emscripten (apt-get install emscripten)"
command -v node >/dev/null || skip "there is no Node (apt-get install nodejs)"

temporary="$(mktemp -d)"
trap 'rm -rf "$temporary"' EXIT
export EDDY_NATIVE_BUILD="$build" EDDY_BROWSER_BUILD="${EDDY_BROWSER_BUILD:-$build/browser}" EDDY_NUM_THREADS=2
mkdir -p "$temporary/data/tinyshakespeare"
for i in $(seq 3000); do echo "Line $i says: $((i * i % 97)), $((i * 7 % 31))."; done >"$temporary/data/tinyshakespeare/input.txt"
page="${2:-$temporary/page.html}"
make=(--steps 2 --runs "$temporary/runs" --out "$page")
if (($# > 1)); then make=(--engine); fi
EDDY_DATA_DIR="$temporary/data" "$root/examples/browser/make.sh" "${make[@]}" >"$temporary/log" 2>&1 ||
  { cat "$temporary/log" >&2 && exit 1; }

engine="$EDDY_BROWSER_BUILD/bin/page.js"
native="$build/bin/example_browser"
wasm=(node "$root/examples/browser/logits.js" "$engine")
# The largest difference between the numbers of two files, of a number beyond 1 relative to it; their count must be equal, and
# not 0, and each must be finite.
difference() {
  paste -d' ' <(tr -s ' ' '\n' <"$1" | sed '/^$/d') <(tr -s ' ' '\n' <"$2" | sed '/^$/d') |
    awk 'NF != 2 || /[^-+.0-9e ]/ { bad = 1 }
      { d = $1 > $2 ? $1 - $2 : $2 - $1; size = $1 < 0 ? -$1 : $1; if (size > 1) d /= size; if (!(d <= most)) most = d }
      END { if (bad || NR == 0) exit 1; printf "%.3g\n", most }'
}
# Sums have other orders in WebAssembly, whose vectors have four numbers: at most 1e-5 apart.
compare() {
  local most
  most="$(difference "$temporary/native" "$temporary/wasm")" ||
    { echo "$1: there are none, or not as many of both, or one is not finite" >&2 && exit 1; }
  echo "$1: largest difference $most"
  awk -v most="$most" 'BEGIN { exit !(most <= 1e-5) }'
}
node "$root/tests/browser/unpack.js" "$page" "$temporary"
ids=()
for i in $(seq 300); do ids+=($((i * i % 53 % 17))); done # beyond a block, a chunk and a segment
for file in "$temporary"/*.safetensors; do
  "$native" logits "$file" "${ids[@]}" >"$temporary/native"
  "${wasm[@]}" logits "$file" "${ids[@]}" >"$temporary/wasm"
  compare "$(basename "$file" .safetensors)"
done
"$native" parity 10 1 >"$temporary/native"
"${wasm[@]}" parity 10 1 >"$temporary/wasm"
compare "parity, 10 steps"

node "$root/tests/browser/failures.js" "$engine" "$temporary/0.safetensors"
node "$root/tests/browser/open_page.js" "$page" "${3:-}"
