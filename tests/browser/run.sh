#!/usr/bin/env bash
# The pages of examples/browser, made anew, the large one with models that were trained for two steps: in Node its functions must
# give the logits of the native program, and in a browser without a screen the page must work. parity.sh looks at the small one.
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

# shellcheck source=tests/browser/compare.sh
source "$root/tests/browser/compare.sh"
engine="$EDDY_BROWSER_BUILD/bin/page.js"
native="$build/bin/example_browser"
wasm=(node "$root/examples/browser/logits.js" "$engine")
node "$root/tests/browser/unpack.js" "$page" "$temporary"
ids=()
for i in $(seq 300); do ids+=($((i * i % 53 % 17))); done # beyond a block, a chunk and a segment
for file in "$temporary"/*.safetensors; do
  "$native" logits "$file" ${ids[@]+"${ids[@]}"} >"$temporary/native"
  "${wasm[@]}" logits "$file" ${ids[@]+"${ids[@]}"} >"$temporary/wasm"
  compare "$(basename "$file" .safetensors)" "$temporary/native" "$temporary/wasm"
done
node "$root/tests/browser/failures.js" "$engine" "$temporary/0.safetensors"
node "$root/tests/browser/open_page.js" "$page" "${3:-}"

"$root/examples/browser/make.sh" --parity --out "$temporary/parity.html" >"$temporary/log" 2>&1 || { cat "$temporary/log" >&2 && exit 1; }
"$root/tests/browser/parity.sh" "$build" "$temporary/parity.html" ${3:+"$3"}
