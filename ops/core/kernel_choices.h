// The only list of choices among a GPU's kernels: one record for each. It makes the items of EDDY_KERNELS
// (set_gpu_kernels), what "auto" is, the trials of train/app/measure/kernels/, the kernels that steps of a run are
// timed with, and what programs show and record. cuda/README.md has the steps to another kernel.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace eddy::detail {

// EDDY_KERNEL_CHOICES(ROW): ROW(name, part_of, kernels, measured, timed, trial)
//
//   name      in a list of kernels, "attention" in "attention=mma", and as KernelOp
//   part_of   the choice that this is a part of: its items set this one too, and its trials are this one's. Else the
//             name
//   kernels   the names to choose among. "plain" takes every call, and the others are compared with it
//   measured  the fastest on an H200 (docs/gpu.md): what "auto" is on a GPU of compute capability 9.0 without
//             trials, and on any other what elsewhere() says. plain where no GPU has timed the others
//   timed     the kernels that steps of a new run are timed with, where they are right
//   trial     the function of train/app/measure/kernels/ that tries a kernel. try_samples takes the samples
//             and the benchmarks of the ops `name` and `name`_..., in f32
//
// What the kernels take; another one runs where a call is not taken:
//
//   attention        more than 64 queries
//   short_attention  up to 64 queries
//     wgmma          bf16, heads of 16 to 128 in steps of 16; compute capability 9.0
//     mma            the same types and heads, by mma.sync
//     plain          all; it computes in f32, at no size the fastest: one step with it may take minutes
//   attention_backward  dq, dk and dv of attention by wgmma
//     fused          one kernel for all three: no positions; with a bias or scales of heads to learn, heads that
//                    share no keys, and a band that fits
//     plain          all; a kernel for dq and one for dk and dv
//   recurrence       block recurrences: accumulate and forget
//     fused          one kernel for all windows: products in bf16, dim up to 128 in steps of 32, blocks of up to 64
//                    positions, heads of up to 32 numbers
//     plain          all; products and small kernels for each window
//   unit_recurrence  the chain over time
//     phases         four launches a step: products in bf16, dim up to 512, heads of up to 64 numbers
//     plain          all; products and small kernels
//   products         with a residual stream
//     fused          the product also adds it: bf16 and TF32, where cuBLASLt has an algorithm
//     plain          all; separate kernels
//   gelu_products    the two products of an MLP with GELU, in bf16
//     fused          the product's kernel has GELU, or its derivative and the sums for the bias's gradient: compute
//                    capability 9.0, columns and rows at multiples of 16 bytes, 64 tiles of 128 x 128 or more
//     plain          all; cuBLASLt's products, and separate kernels
//   positions        by distance, in attention
//     products       products with all positions, beside attention by wgmma: from 16 queries on, without a bias
//     plain          all; products in attention's tiles
//   tf32_attention   attention of f32 where products are TF32
//     mma            heads of 16 to 128 in steps of 16, with positions of up to 64, by mma.sync
//     plain          all; it computes in f32
//   wide_attention   attention with heads of more than 64, forward, beside wgmma
//     tma            one warp loads, by the GPU's copy unit: without positions, rows at multiples of 16 bytes
//     plain          all; every thread loads
//   algorithms       of products by cuBLASLt
//     timed          shapes that have one which was timed (product_algorithms.h)
//     plain          all; the first that the library proposes

// clang-format off
#define EDDY_KERNEL_CHOICES(ROW) \
  ROW(attention, attention, "plain|mma|wgmma", wgmma, "mma|wgmma", try_attention) \
  ROW(short_attention, attention, "plain|mma|wgmma", mma, "mma|wgmma", try_attention) \
  ROW(recurrence, recurrence, "plain|fused", plain, "plain|fused", try_recurrence) \
  ROW(products, products, "plain|fused", fused, "plain|fused", try_products) \
  ROW(gelu_products, gelu_products, "plain|fused", plain, "plain|fused", try_gelu_products) \
  ROW(positions, positions, "plain|products", plain, "plain|products", try_positions) \
  ROW(unit_recurrence, unit_recurrence, "plain|phases", plain, "plain|phases", try_unit_recurrence) \
  ROW(tf32_attention, tf32_attention, "plain|mma", plain, "plain|mma", try_tf32_attention) \
  ROW(wide_attention, wide_attention, "plain|tma", plain, "plain|tma", try_wide_attention) \
  ROW(attention_backward, attention_backward, "plain|fused", plain, "plain|fused", try_attention_backward) \
  ROW(algorithms, algorithms, "plain|timed", plain, "plain|timed", try_algorithms)
// clang-format on

// The kernels of all choices, and their names.
enum class Kernel { automatic, plain, mma, wgmma, fused, products, phases, tma, timed };
inline constexpr std::string_view kKernelNames[] = {"auto",     "plain",  "mma", "wgmma", "fused",
                                                    "products", "phases", "tma", "timed"};
constexpr std::string_view kernel_name(Kernel kernel) {
  return kKernelNames[static_cast<int>(kernel)];
}

// What part of another's time a kernel, or an algorithm of a product, takes at most if it is to be taken in its place:
// a smaller gain is chance.
inline constexpr double kWorthIt = 0.98;

// A choice.
enum class KernelOp {
#define EDDY_NAME(name, ...) name,
  EDDY_KERNEL_CHOICES(EDDY_NAME)
#undef EDDY_NAME
};

// A record, without its trial.
struct KernelRecord {
  std::string_view name, part_of, kernels;
  Kernel measured;
  std::string_view timed;

  bool is_part() const { return name != part_of; }
  // What "auto" is without trials on a GPU on which no kernel has been timed: attention on tensor cores by mma, which
  // every GPU from 8.0 on has, since the plain kernel is the slowest at every size; of all else the plain kernel.
  Kernel elsewhere() const {
    return measured == Kernel::wgmma || measured == Kernel::mma ? Kernel::mma : Kernel::plain;
  }
};
// The records, as KernelOp.
inline constexpr KernelRecord kKernelRecords[] = {
#define EDDY_RECORD(name, part_of, kernels, measured, timed, trial) \
  {#name, #part_of, kernels, Kernel::measured, timed},
    EDDY_KERNEL_CHOICES(EDDY_RECORD)
#undef EDDY_RECORD
};

// Returns the names in a list with |, as `kernels` and `timed` have them.
inline std::vector<std::string> kernels_in(std::string_view list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find('|', begin), list.size());
    names.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace eddy::detail
