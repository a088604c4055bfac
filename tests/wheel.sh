#!/usr/bin/env bash
# Installs the wheel in an environment of its own and tries it as somebody who may only read there, without a network and
# without another program: training, exercises, licences, what it says of CUDA, and that pip takes all of it away again.
#
#   tests/wheel.sh [FILE]      without FILE the wheel is made here first, by cmake/packaging/wheel.sh --here
#
# The status is 77, skipped, where Python has no module venv, or no wheel can be made.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
skip() {
  echo "wheel.sh: skipped: $1"
  exit 77
}
fail() {
  echo "wheel.sh: $1" >&2
  exit 1
}
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "there is no python3 with venv (apt-get install python3-venv)"
file="${1:-}"
if [[ -z "$file" ]]; then
  command -v dpkg-query >/dev/null || skip "the libraries here are no packages of Debian, so their licences are unknown"
  "$root/cmake/packaging/wheel.sh" --here
  file="$(echo "$root"/build/wheels/*.whl)"
fi
file="$(realpath -e "$file")"

folder="$(mktemp -d)"
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
venv="$folder/venv" work="$folder/work"
mkdir "$work"
cat "$root"/docs/*.md >"$work/my.txt"
started=$SECONDS
python3 -m venv "$venv"
before="$(cd "$venv" && find . ! -type d ! -name '*.pyc' | sort)"
"$venv/bin/pip" install --quiet --no-index --no-cache-dir --disable-pip-version-check "$file"

# Root may write everywhere: nobody does it instead.
alone=(unshare --user --map-current-user --net) as=()
if ((EUID == 0)); then
  alone=(unshare --net) as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  chmod 755 "$folder"
  chown 65534:65534 "$work"
else
  chmod -R a-w "$venv"
fi
if ! "${alone[@]}" true 2>/dev/null; then
  echo "wheel.sh: this system takes no network away, so it is tried with one"
  alone=(env)
fi
cd "$work"
eddy() { "${alone[@]}" ${as[@]+"${as[@]}"} env -i PATH="$folder/none" "$venv/bin/eddy" "$@"; }
says() { # TEXT COMMAND ...: whether it succeeds or not
  local text="$1" said
  shift
  said="$("$@" 2>&1)" || true
  [[ "$said" == *"$text"* ]] || fail "$* does not say: $text, but: $said"
}

version="$(eddy --version)"
[[ "$(basename "$file")" == eddy_train-"$version"-* ]] || fail "$file holds version $version"
outside="$(ldd "$venv/bin/eddy" | awk -v inside="$venv" '/not found/ || ($3 ~ "^/" && index($3, inside) != 1)')"
others="$(grep -vE '^\s*lib(c|m)\.so\.6 ' <<<"$outside" || true)"
[[ -z "$others" ]] || fail "the program loads from outside: $others"

# The tag is no older and no newer than what the files ask for. Names of versions stand in them as they are.
asked="$(LC_ALL=C grep -aoh 'GLIBC_2\.[0-9]*' "$venv/bin/eddy" "$venv"/libexec/eddy/* | sort -uV | tail -n 1)"
[[ "$file" == *-manylinux_"$(tr . _ <<<"${asked#GLIBC_}")"_* ]] || fail "its files ask for $asked"

eddy train --data my.txt --run run --train.minutes 0.5
sed -n 's/^{"kind":"step".*"loss":\([0-9.]*\).*/\1/p' run/metrics.jsonl |
  awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR > 1 && last < 0.9 * first) }' ||
  fail "half a minute has taught the model nothing"
[[ -s run/report.html && -s run/tokenizer.json ]] || fail "the run has no report"
eddy generate run --tokens 200
echo "wheel.sh: from the file to a trained sample: $((SECONDS - started)) s"
says "examples: $venv/share/eddy" eddy info
[[ -s "$venv/share/eddy/configs/quickstart.toml" ]] || fail "there are no configurations"
says "-DEDDY_CUDA=ON" eddy train --data my.txt --run none --train.device cuda
says "Next: eddy learn 1" eddy learn
eddy learn 1 >/dev/null
says "there is no C++ compiler" eddy learn check 1

info="$(echo "$venv"/lib/python*/site-packages/eddy_train-*.dist-info)"
for library in "$venv"/libexec/eddy/*; do
  package="$(grep -F "libexec/eddy/${library##*/}" "$info/licenses/INSIDE" | sed 's/:.*//')"
  [[ -s "$info/licenses/$package/copyright" ]] || fail "there is no licence of $library"
done

chmod -R u+w "$venv"
"$venv/bin/pip" install --quiet --no-index --no-cache-dir --disable-pip-version-check --target "$folder/target" "$file"
[[ "$(ldd "$folder/target/bin/eddy")" == *"$folder/target/"* ]] || fail "pip install --target leaves libraries out"
"$venv/bin/pip" uninstall --quiet --yes --disable-pip-version-check eddy-train
after="$(cd "$venv" && find . ! -type d ! -name '*.pyc' | sort)"
[[ "$before" == "$after" ]] || fail "pip leaves behind: $(comm -13 <(echo "$before") <(echo "$after"))"
echo "wheel.sh: $(basename "$file") passed"
