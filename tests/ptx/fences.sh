#!/usr/bin/env bash
# Reads the PTX of the kernels with wgmma: no register of a product may be written between wgmma.fence and the product, or
# between products of one group, on any path. ptxas may move such a write back before the fence, and need not.
#
#   tests/ptx/fences.sh FILE.ptx ...
set -euo pipefail

# Prints each write, and at the end how many products were read; fails if there is a write or no product.
check() { # file ...
  awk '
    function registers(text, into,    i, count, words) {
      count = split(text, words, /[^%a-z0-9]+/)
      for (i = 1; i <= count; ++i) if (words[i] ~ /^%[fr][0-9]+$/) into[words[i]] = 1
    }
    /wgmma\.fence/ { open = 1; delete written; next }
    /wgmma\.commit_group/ { open = 0; next }
    /wgmma\.mma_async/ {
      ++products
      delete used
      registers(substr($0, index($0, "mma_async")), used)
      if (!open) { print FILENAME ":" FNR ": a product without a fence before it"; ++wrong }
      for (name in used)
        if (name in written) { print FILENAME ":" written[name] ": " name " is written between the fence and the product in line " FNR; ++wrong }
      next
    }
    open && $1 !~ /^(\/\/|\.loc|st\.|bra|@|\$|cp\.|bar)/ && $2 ~ /^[{%]/ {
      delete used
      registers($2 ~ /^\{/ ? substr($0, index($0, "{"), index($0, "}") - index($0, "{")) : $2, used)
      for (name in used) written[name] = FNR
    }
    END {
      printf "%d products of warpgroups, %d writes behind their fence\n", products, wrong
      exit wrong > 0 || products == 0
    }' "$@"
}

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# The check itself: a write before the fence is right, and one behind it is found.
product='{ .reg .pred add; setp.ne.b32 add, %r9, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32 {%f1, %f2}, {%r1, %r2}, %rd1, add; }'
printf '%s\n' 'mov.f32 %f1, %f7;' 'wgmma.fence.sync.aligned;' 'add.s64 %rd1, %rd2, 2;' 'add.s32 %r9, %r1, 1;' "$product" \
  'wgmma.commit_group.sync.aligned;' 'mov.f32 %f1, %f7;' >"$folder/right"
check "$folder/right" >/dev/null
for write in 'mov.f32 %f2, %f7;' 'ld.shared.v2.u32 {%r8, %r1}, [%rd4];'; do
  printf '%s\n' 'wgmma.fence.sync.aligned;' "$write" "$product" >"$folder/wrong"
  if check "$folder/wrong" >/dev/null; then
    echo "fences.sh: does not find '$write' behind a fence" >&2
    exit 1
  fi
done

check "$@"
