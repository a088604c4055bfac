# shellcheck shell=bash
# For the scripts of this folder, which source it: compare NAME NATIVE WASM fails where the numbers in these two files differ.

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
  most="$(difference "$2" "$3")" ||
    { echo "$1: there are none, or not as many of both, or one is not finite" >&2 && exit 1; }
  echo "$1: largest difference $most"
  awk -v most="$most" 'BEGIN { exit !(most <= 1e-5) }'
}
