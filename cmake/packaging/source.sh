#!/usr/bin/env bash
# Makes build/eddy-VERSION.tar.gz: the files of the last commit, from which all is built and tested without git. The same
# commit gives the same bytes.
#
#   cmake/packaging/source.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version="$(sed -n 's/^project(eddy VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
mkdir -p build
git archive --format=tar --prefix="eddy-$version/" HEAD | gzip --no-name -9 >"build/eddy-$version.tar.gz"
if [[ -n "$(git status --porcelain)" ]]; then echo "source.sh: what is not committed is not in it" >&2; fi
echo "build/eddy-$version.tar.gz"
