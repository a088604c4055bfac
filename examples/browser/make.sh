#!/usr/bin/env bash
# Makes the pages that run in a browser, each one HTML file that opens from disk, without a network. The large one: trains four
# models and compiles Eddy to WebAssembly. The small one trains the parity model while one looks, and needs the compiler alone.
#
#   examples/browser/make.sh                    some 50 minutes on two cores: build/browser/eddy.html
#   examples/browser/make.sh --steps 200        a trial: at most so many steps for each model
#   examples/browser/make.sh --out page.html    where the page is written
#   examples/browser/make.sh --runs FOLDER      where the runs are: runs/browser, or runs/browser-200 for --steps 200; what has
#                                               been trained there is taken
#   examples/browser/make.sh --parity           the small page, some 5 minutes on one core: docs/train-parity.html
#   examples/browser/make.sh --engine           compiles alone: page.js and page.wasm in build/browser/bin
#   examples/browser/make.sh --digest           prints a digest of the sources of the small page, as it stands at the end of that page
#
# The text is tiny Shakespeare: tinyshakespeare/input.txt under EDDY_DATA_DIR, or downloaded once.
# EDDY_NATIVE_BUILD names a folder with a build that stands already, EDDY_BROWSER_BUILD another one than build/browser.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
here="$root/examples/browser"
native="${EDDY_NATIVE_BUILD:-$root/build/release}"
wasm="${EDDY_BROWSER_BUILD:-$root/build/browser}"
runs=""
trial=""
out=""
only="" # parity, engine or digest
steps=() # read by ${steps[@]+...}: before 4.4, bash takes an empty list for one that is not set
started=$SECONDS
# A path from the root on, which need not exist.
absolute() { [[ "$1" == /* ]] && echo "$1" || echo "$PWD/$1"; }
heading() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - started)); }

while (($# > 0)); do
  case "$1" in
    -h | --help)
      awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --parity | --engine | --digest) only="${1#--}" && shift ;;
    --steps | --out | --runs)
      if (($# < 2)); then
        echo "make.sh: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --steps)
          if [[ ! "$2" =~ ^[1-9][0-9]{0,8}$ ]]; then
            echo "make.sh: --steps $2 (a number from 1 on)" >&2
            exit 2
          fi
          steps=(--train.steps "$2" --train.warmup "$(($2 / 30))")
          trial="-$2"
          ;;
        --out) out="$(absolute "$2")" ;;
        --runs) runs="$(absolute "$2")" ;;
      esac
      shift 2
      ;;
    *)
      echo "make.sh: unknown option $1 (--help lists them)" >&2
      exit 2
      ;;
  esac
done
if [[ "$only" == parity ]]; then
  out="${out:-$root/docs/train-parity.html}"
fi
out="${out:-$wasm/eddy.html}"
runs="${runs:-$root/runs/browser$trial}" # a trial's models are not taken for those of the page

sha256=(sha256sum)
if ! command -v sha256sum >/dev/null; then sha256=(shasum -a 256); fi # macOS
sources_digest() {
  (
    cd "$root"
    {
      find tensor autograd ops models -name '*.h' -o -name '*.cpp' ! -name '*_specs.cpp'
      find CMakeLists.txt cmake/*.cmake
      find examples/browser \( -name 'parity*' -o -name 'training.*' -o -name 'shared.js' -o -name 'engine.js' -o -name 'page.css' \
        -o -name 'make.sh' -o -name 'CMakeLists.txt' -o -name 'guarded.h' -o -name 'floats.h' \)
    } | LC_ALL=C sort | xargs "${sha256[@]}" | "${sha256[@]}" | cut -c1-16
  )
}

if [[ "$only" == digest ]]; then
  sources_digest
  exit
fi

# What an hour of training would be lost for is looked at before it.
if [[ -d "$out" ]]; then
  echo "make.sh: $out is a folder (--out names the file of the page)" >&2
  exit 2
fi
if ! command -v emcmake >/dev/null; then
  echo "make.sh: Emscripten, the compiler to WebAssembly, is not installed (apt-get install emscripten)" >&2
  exit 1
fi

# Emscripten runs modules of Node that Debian keeps in a folder which Nodes of others do not search.
export NODE_PATH="${NODE_PATH:+$NODE_PATH:}/usr/share/nodejs"

compile() { # page or parity
  heading "Eddy to WebAssembly"
  emcmake cmake -S "$root" -B "$wasm" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DEDDY_BLAS=none -DEDDY_BUILD_TRAIN=OFF -DEDDY_BUILD_TESTS=OFF \
    -DEDDY_BUILD_EXAMPLES=OFF -DEDDY_INSTALL=OFF
  cmake --build "$wasm" --target "$1"
}

# Writes a page: the program whose .js, .wasm, .html and .js of the page it has, its title, the most bytes that it may have, and
# lines between its text and its programs from the standard input.
write_page() {
  local program="$1" title="$2" most="$3" script
  heading "The page"
  mkdir -p "$(dirname "$out")"
  {
    echo "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>$title</title>"
    echo '<meta name="viewport" content="width=device-width, initial-scale=1"><style>'
    cat "$here/page.css"
    echo '</style></head><body>'
    cat "$here/$program.html" "$here/training.html" -
    echo '<script type="text/plain" id="wasm">'
    gzip -9n <"$wasm/bin/$program.wasm" | in_base64
    echo '</script>'
    for script in "$wasm/bin/$program.js" "$here"/{engine,shared,training,$program}.js; do
      echo '<script>'
      cat "$script"
      echo '</script>'
    done
    echo '</body></html>'
  } >"$out.part"
  mv "$out.part" "$out"
  local bytes=$(($(wc -c <"$out")))
  if ((bytes > most)); then
    echo "make.sh: $out has $bytes bytes, more than the $most that it may have" >&2
    exit 1
  fi
  echo "$out: $bytes bytes; open it in a browser"
}
in_base64() { base64 | tr -d '\n'; }

case "$only" in
  engine)
    compile page
    exit
    ;;
  parity)
    digest="$(sources_digest)" # before it compiles: what is changed meanwhile is newer than the page
    compile parity
    version="$(sed -n 's/^project(eddy VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")"
    compiler="$(emcc --version | sed -n '1s/.*) \([0-9.]*\).*/\1/p')"
    write_page parity "Eddy trains a model" 4000000 <<EOF
<p class="soft">Made by <code>examples/browser/make.sh --parity</code> from Eddy $version, sources <code id="sources">$digest</code>, \
with Emscripten $compiler.</p>
</main>
EOF
    exit
    ;;
esac

if [[ -z "${EDDY_NATIVE_BUILD:-}" ]]; then
  heading "Eddy for this machine"
  (cd "$root" && cmake --preset release && cmake --build --preset release --target eddy_program example_browser)
fi
for program in "$native/eddy" "$native/bin/example_browser"; do
  if [[ ! -x "$program" ]]; then
    echo "make.sh: there is no $program (build the targets eddy_program and example_browser)" >&2
    exit 1
  fi
done

compile page

# name | flags | title | what it is | the part of the state that is shown first | what its parts are
models=(
  "unit|--model.model unit_forget --model.positions false --model.layers 2|Unit recurrence\
|one vector in each layer goes from letter to letter|layers.1.v\
|layers.N.k and layers.N.v are the key and the value of what layer N made of the last letter. The next letter attends to itself and to \
them, and to nothing else."
  "block|--model.model block_recurrent --model.layers 4|Block-Recurrent\
|state vectors, read at each letter and rewritten after each block|layers.3.state\
|layers.3.state has the state vectors, one a row, which gates rewrite after each block; state_k and state_v are their keys and values. \
layers.N.k and layers.N.v are those of the last letters: a window, which slides."
  "memory|--model.model memory_llama --model.layers 4|Block-wise memory\
|each layer attends to a chunk and to a memory of the chunks before|memory\
|memory has, for each layer, a row for each letter of a chunk: what the layer's attention gave for the last letter in that place. keys and \
values are those of the memory, renewed after each chunk, and then of the letters of this chunk."
  "staircase|--model.model staircase --model.layers 4|Staircase\
|chunks pass the same layers again, step by step|stream.rows.2\
|A row is a letter in a layer: its key, its value, and what came into the layer. stream.rows has what the first pass of a letter sees, \
stream.rows.2 what the second sees."
)
for model in "${models[@]}"; do
  IFS='|' read -r name flags _ <<<"$model"
  run="$runs/$name"
  if [[ ! -e "$run.safetensors" ]]; then
    heading "Training: $name"
    if [[ -e "$run/checkpoints/latest" ]]; then
      "$native/eddy" train --resume "$run" ${steps[@]+"${steps[@]}"}
    else
      # shellcheck disable=SC2086
      "$native/eddy" train "$here/../configs/browser.toml" --run "$run" $flags ${steps[@]+"${steps[@]}"}
    fi
    rm -rf "$run-export"
    "$native/eddy" export "$run" --out "$run-export"
    "$native/bin/example_browser" pack "$run-export" "$run.safetensors"
    rm -rf "$run-export"
  fi
done

{
  echo '</main>'
  for model in "${models[@]}"; do
    IFS='|' read -r name _ title about part parts <<<"$model"
    printf '<script type="text/plain" class="model" data-name="%s" data-about="%s" data-part="%s" data-parts="%s">' \
      "$title" "$about" "$part" "$parts"
    in_base64 <"$runs/$name.safetensors"
    echo '</script>'
  done
} | write_page page "Recurrent transformers at work" 16000000
