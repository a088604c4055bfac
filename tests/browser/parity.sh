#!/usr/bin/env bash
# The small page of examples/browser as it stands in docs/: what it holds must give the losses of the native program, in Node, and
# in a browser without a screen it must work.
#
#   tests/browser/parity.sh BUILD_DIR [PAGE [PICTURES]]     with PAGE that one in its place, with PICTURES drawn there
#
# Exit status 77, with the reason: no Node, or all of that holds and the page is older than the sources that it was made of.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
native="$(cd "$1" && pwd)/bin/example_browser"
page="${2:-$root/docs/train-parity.html}"
skip() {
  echo "SKIPPED: $*"
  exit 77
}
command -v node >/dev/null || skip "there is no Node (apt-get install nodejs)"

temporary="$(mktemp -d)"
trap 'rm -rf "$temporary"' EXIT
export EDDY_NUM_THREADS=2
# shellcheck source=tests/browser/compare.sh
source "$root/tests/browser/compare.sh"
node "$root/tests/browser/unpack_engine.js" "$page" "$temporary/parity"
for recurrent in 1 0; do
  "$native" parity 10 1 $recurrent >"$temporary/native"
  node "$root/examples/browser/logits.js" "$temporary/parity.js" parity 10 1 $recurrent >"$temporary/wasm"
  compare "parity, recurrence $recurrent, 10 steps" "$temporary/native" "$temporary/wasm"
done
node "$root/tests/browser/open_parity.js" "$page" "${3:-}"

made_of="$(sed -n 's/.*<code id="sources">\([0-9a-f]*\)<.*/\1/p' "$page")"
now="$("$root/examples/browser/make.sh" --digest)"
if [[ "$made_of" != "$now" ]]; then
  skip "$page is older than its sources: it was made of $made_of, and they are $now (make it anew: examples/browser/make.sh --parity)"
fi
