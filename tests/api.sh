#!/usr/bin/env bash
# Makes the pages of the public names by Doxygen, and reads them: each name has a comment, none shows the marks of one, and the
# first page leads to each name in two clicks.
#
#   tests/api.sh BUILD_DIR [DOXYGEN]
set -euo pipefail

if (($# < 1)) || [[ ! -f "$1/api/Doxyfile" ]]; then
  echo "usage: tests/api.sh BUILD_DIR [DOXYGEN] (a configured folder, such as build/release)" >&2
  exit 2
fi
build="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rm -rf "$build/api/html" # with pages of headers that had another name
"${2:-doxygen}" "$build/api/Doxyfile"
cd "$build/api/html"

if grep -H '///' ./*.html; then
  echo "api.sh: the pages above show the marks of comments (cmake/api.awk)" >&2
  exit 1
fi
# The pages that pages link to, and the places in them.
links() { { grep -oh 'href="[a-z][^":]*\.html[^"]*"' "$@" || true; } | sed 's/^href="//; s/"$//' | sort -u; }
sed -n '/class="contents"/,$p' index.html >"$build/api/first_page"
first=()
while read -r page; do first+=("$page"); done < <(links "$build/api/first_page")
headers="$(sed -n 's/^INPUT = //p' "$build/api/Doxyfile" | tr ' ' '\n' | grep '\.h$')"
unlinked="$(comm -23 <(sort <<<"$headers") <(grep -o '>[a-z_/]*\.h</a>' "$build/api/first_page" | sed 's/^>//; s/<.*//' | sort))"
unreached="$(comm -23 <(links annotated.html namespacemembers*.html | grep -e '^class' -e '^struct' -e '#') <(links ${first[@]+"${first[@]}"}) |
  grep -v -F "$(printf '%s#\n' ${first[@]+"${first[@]}"})" || true)"
if [[ -n "$unlinked$unreached" ]]; then
  echo "api.sh: not in the map of the first page, or not two clicks from it: $unlinked $unreached" >&2
  exit 1
fi
