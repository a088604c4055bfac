// CPU matrix products whose right operand is packed once and used many times: C = A B (+ C), for recurrent
// weights and for products with few rows.
//
// B [inner, columns] is stored as panels of `panel_columns` columns. Each panel is inner-major (all columns
// of one inner index side by side) and 64-byte aligned; the last one is padded with zeros. An element of C is
// one accumulation over `inner` in rising order, starting at 0 or at C: its bits depend neither on the number
// of rows nor on how panels are spread over threads.
//
// At 16 rows it does 146 GFLOP/s where OpenBLAS does 61 (docs/choices.md).
//
// Source of the blocking: K. Goto, R. van de Geijn, Anatomy of high-performance matrix multiplication, TOMS
// 2008.
#pragma once

#include <cstdint>

#include "ops/product/gemm.h"
#include "tensor/base/host_device.h"

namespace eddy::detail {

// How the matrix to pack lies in memory, row-major.
enum class PackLayout {
  inner_by_columns,  // W [inner, columns]: B = W, e.g. dy W of a linear layer
  columns_by_inner,  // W [columns, inner]: B = W^T, e.g. x W^T of a linear layer
};

// Panels [panel_begin, panel_end) of B [inner, columns], stored row by row, that a kernel packs while it multiplies by
// others.
template <class T>
struct LaterPanels {
  const T* b = nullptr;
  std::int64_t stride = 0, inner = 0, columns = 0, panel_begin = 0, panel_end = 0;
  T* packed = nullptr;  // the start of the whole packed matrix
};

// The columns of the panels [panel_begin, panel_end) of C = A B + bias, or of C += A B; with `relu` of max(0, C) then.
// C is written only in its `columns` columns and, without `accumulate`, never read.
// shapes: a [rows, inner] or, transposed, [inner, rows], c [rows, columns], bias [columns] or null; rows of a and c
// lie a_stride and c_stride elements apart.
// aliasing: c overlaps neither a nor packed.
template <class T>
struct PanelProduct {
  std::int64_t rows, inner, columns, panel_begin, panel_end;
  const T* a;
  std::int64_t a_stride;
  const T* packed;  // the start of the whole packed matrix
  T* c;
  std::int64_t c_stride;
  bool accumulate = false;
  const T* bias = nullptr;  // without accumulate
  bool relu = false;
  LaterPanels<T> later = {};  // only of kernels that pack_later
};

// The kernels of one element type on one instruction set.
template <class T>
struct PackedGemm {
  std::int64_t panel_columns;

  // Packs the panels [panel_begin, panel_end) of the matrix `w` with row stride `w_stride` into `packed`, the
  // start of the whole packed matrix. Threads may pack disjoint ranges at once.
  void (*pack)(const T* w, std::int64_t w_stride, PackLayout layout, std::int64_t inner, std::int64_t columns,
               std::int64_t panel_begin, std::int64_t panel_end, T* packed);

  // Threads may compute disjoint ranges of panels, or of rows, at once.
  void (*multiply)(const PanelProduct<T>&);
  // The same with A stored [inner, rows]; null where the kernel reads rows only.
  void (*multiply_transposed)(const PanelProduct<T>&) = nullptr;

  // Runs so many rounds of the kernel's instruction on registers alone, and returns the number of its multiply-adds: no
  // product of these kernels is faster.
  std::int64_t (*multiply_registers)(std::int64_t rounds) = nullptr;

  // How panels are stored: `inner` is padded to a multiple of this, and with `pairs` two factors take the place
  // of one element.
  std::int64_t inner_step = 1;
  bool pairs = false;
  // Inner indices of which B is packed at a time in a product with transposed A, as gradients of weights are: over all
  // rows of a batch. The packed part, that of A and, of usual weights, C stay in the second-level cache.
  std::int64_t packed_inner = 0;
  bool packs_later = false;

  // The number of panels of a matrix with so many columns.
  EDDY_INLINE std::int64_t panels(std::int64_t columns) const {
    return (columns + panel_columns - 1) / panel_columns;
  }
  // The number of elements of a packed matrix; its start must be 64-byte aligned.
  EDDY_INLINE std::int64_t packed_elements(std::int64_t inner, std::int64_t columns) const {
    const std::int64_t elements =
        panels(columns) * panel_columns * ((inner + inner_step - 1) / inner_step) * inner_step;
    return pairs ? elements / 2 : elements;
  }
};

struct PackedGemmKernels {
  PackedGemm<float> f32;
  PackedGemm<double> f64;
};

// The kernels of the instruction set in use (ops/cpu/isa.h). A matrix must be packed and multiplied by the same
// kernels, because the panels of others are wider or narrower. At a precision that rounds_to_bf16, the kernels of f32
// do so.
const PackedGemmKernels& packed_gemm_kernels(MatmulPrecision precision = MatmulPrecision::f32);

// Kernels that round their factors to bf16 (bf16_gemm.isa.cpp); empty where the build lacks them.
struct Bf16GemmKernels {
  PackedGemm<float> dot, amx;  // dot: by VDPBF16PS, on ARM64 by BFMMLA
  // For tests: the loops of `amx` with its instructions in plain C++, and those of BFMMLA.
  PackedGemm<float> emulated_amx, emulated_dot;
};
const Bf16GemmKernels& bf16_gemm_kernels();

// What is decided: whether the gradient dW = dy^T x of a weight W [out, in] is computed in f32 although the precision
// rounds factors. It is, if min(out, in) < kLeastRoundedSide: then most of a tile is padding. The number of rows
// decides nothing, and neither does the instruction set. All other products round: x W^T and dy W, and dW of larger
// weights.
//
// With a side of 10 dW takes 12.4 us in f32 and 17.9 in bf16, with one of 16 as long (docs/choices.md). Products of up
// to 4 rows by small weights are 0.1 to 0.2 us slower in bf16, since setting up the tiles costs that. They round in
// spite of it: a row would have other bits alone than in a batch.
inline constexpr std::int64_t kLeastRoundedSide = 16;

// Called when an instruction set is installed.
void set_packed_gemm_kernels(const PackedGemmKernels& kernels, const Bf16GemmKernels& rounding);

// Multiplies by the panels of g. They are spread over threads; the bits do not depend on how.
void multiply_panels(const GemmArgs& g);

// Computes any product of f32 or f64, and packs B if the caller has not; rounds f32 factors to bf16 at a precision that
// does. Threads share rows of C, or, where there are few, panels; the bits do not depend on how.
void multiply_packing(const GemmArgs& g);

}  // namespace eddy::detail
