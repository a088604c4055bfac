// The least work of each kernel, computed from its arguments: the operations of its products and the bytes
// that it must read and write once. The floor of an op is the sum over its kernels (train/app/measure/profile.h).
// Each argument struct of op_list.h has its cost_of here.
//
// Only products count, including those of attention, with 2 operations per multiply-add and without
// recomputation. Elementwise arithmetic does not count, since its memory traffic takes longer. Small tensors
// (biases, weights of norms, statistics, ids) are left out.
#pragma once

#include <algorithm>

#include "ops/core/cost.h"
#include "ops/op_list.h"

namespace eddy::work {

using namespace detail;

inline double number(std::int64_t count) {
  return static_cast<double>(count);
}

// The cost of moving so many elements, without products.
inline Cost moved(Dtype dtype, std::int64_t elements) {
  return {0, number(elements) * static_cast<double>(dtype_bytes(dtype)), false};
}

// The cost of a kernel without products, whose arguments are `a`: so many elements are moved.
#define EDDY_MOVES(Args, elements)     \
  inline Cost cost_of(const Args& a) { \
    return moved(a.dtype, elements);   \
  }

inline Cost products(Dtype dtype, double multiply_adds, std::int64_t elements) {
  Cost cost = moved(dtype, elements);
  cost.flops = 2 * multiply_adds;
  cost.half = dtype == Dtype::bf16;
  return cost;
}

// The cost of a recurrence that also stores `kept_elements` in the dtype `kept`, which is bf16 where its
// products are (RecurrenceArgs::kept).
inline Cost recurrence_cost(const RecurrenceArgs& a, double multiply_adds, std::int64_t elements,
                            std::int64_t kept_elements) {
  Cost cost = products(a.dtype, multiply_adds, elements);
  cost.bytes += moved(a.kept, kept_elements).bytes;
  cost.half = a.kept == Dtype::bf16;
  return cost;
}

// Returns the visible pairs of a query and a key of one head of one sequence, counting keys before `end`.
// Query i sees key j when
//
//   least <= i + keys - queries - j <= most
inline double visible_pairs(const AttentionArgs& a, std::int64_t end) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < a.queries; ++i) {
    const std::int64_t place = i + a.keys - a.queries;
    const std::int64_t first = std::max<std::int64_t>(0, place - a.most),
                       last = std::min(end - 1, place - a.least);
    pairs += std::max<std::int64_t>(0, last - first + 1);
  }
  return number(pairs);
}

// The cost of `count` products over all pairs, and of reading and writing the rows of queries and keys as
// often; `with_table` products more read a small table in place of such rows. For each gradient of the past that is not
// wanted, one product over the past and its rows are left out.
inline Cost attention_cost(const AttentionArgs& a, int count, int with_table, int unwanted) {
  const double pairs = (count + with_table) * visible_pairs(a, a.keys) - unwanted * visible_pairs(a, a.past);
  const std::int64_t rows =
      count * (a.queries * a.heads + a.keys * a.kv_heads) - unwanted * a.past * a.kv_heads;
  return products(a.dtype, pairs * number(a.batch) * number(a.heads) * number(a.head_size),
                  a.batch * a.head_size * rows);
}

inline std::int64_t elements_of(int rank, const std::int64_t* shape) {
  std::int64_t elements = 1;
  for (int i = 0; i < rank; ++i) elements *= shape[i];
  return elements;
}

// Returns the number of distinct elements: an axis of stride 0 repeats.
inline std::int64_t elements_read(int rank, const std::int64_t* shape, const std::int64_t* strides) {
  std::int64_t elements = 1;
  for (int i = 0; i < rank; ++i) elements *= strides[i] == 0 ? 1 : shape[i];
  return elements;
}

inline std::int64_t also_read(double beta) {
  return beta == 0 ? 0 : 1;
}

inline Cost cost_of(const GemmArgs& g) {
  const auto matrices = [&](std::int64_t stride, std::int64_t outer_stride) {
    return (stride == 0 ? 1 : g.batch) * (outer_stride == 0 ? 1 : g.outer);
  };
  const std::int64_t all = g.batch * g.outer;
  Cost cost =
      products(g.dtype, number(g.m) * number(g.n) * number(g.k) * number(all),
               g.m * g.k * matrices(g.stride_a, g.outer_a) + g.k * g.n * matrices(g.stride_b, g.outer_b));
  cost.bytes += moved(g.c_f32 ? Dtype::f32 : g.dtype, (1 + also_read(g.beta)) * g.m * g.n * all).bytes;
  return cost;
}

// z is written forward, where it is wanted, and read backward.
inline Cost cost_of(const GeluProductArgs& a) {
  Cost cost = products(a.dtype, number(a.rows) * number(a.columns) * number(a.depth),
                       (a.rows + a.columns) * a.depth + (a.z == nullptr ? 1 : 2) * a.rows * a.columns);
  if (a.sums != nullptr) cost.bytes += moved(Dtype::f32, summed_blocks(a.rows) * a.columns).bytes;
  return cost;
}

// Forward: the scores and the weighted sum of the values. Backward: four products; recomputing the scores
// does not count. Relative positions take part in the scores by one product more, and backward by two.
inline Cost cost_of(const AttentionArgs& args) {
  return attention_cost(args, 2, args.positions == nullptr ? 0 : 1, 0);
}
inline Cost cost_of(const AttentionBackwardArgs& args) {
  return attention_cost(args.forward, 4, args.forward.positions == nullptr ? 0 : 2,
                        (args.past_dk == nullptr ? 1 : 0) + (args.past_dv == nullptr ? 1 : 0));
}

// A query sees all of the past and the own rows up to itself; the queries are the last `queries` own rows.
inline Cost cost_of(const WindowAttentionArgs& a) {
  const bool backward = a.doutput != nullptr;
  const int factor = backward ? 2 : 1;
  const double pairs =
      number(a.queries) * number(a.past + a.own - a.queries) + number(a.queries) * number(a.queries + 1) / 2;
  return products(a.dtype, 2 * factor * pairs * number(a.batch) * number(a.heads) * number(a.head_size),
                  2 * factor * a.batch * a.heads * a.head_size * (a.queries + a.past + a.own));
}

// Products of one step, forward and again backward for the gradient of its inputs: the weights of keys and
// values (2 D^2), wo (D^2) and the MLP (2 D mlp). The products for the gradients of the weights are outside
// the kernel. Tensors moved for a token of width D:
//
//   forward   writes or reads x, qkv, h, key, value, r; stores o, a1, a2, u for the backward pass
//   backward  reads  qkv, h, key, value, r, u, dh, dkey, dvalue
//             writes dx, dqkv, da1, da2 and the right-hand sides of the weight products, which in bf16 are
//                    copies beside dkey and dvalue
inline Cost cost_of(const UnitRecurrenceArgs& a) {
  const bool backward = a.dh != nullptr;
  const std::int64_t tokens = a.sequences * ((a.time - 1) * a.block + a.last),
                     weights = 3 * a.dim * a.dim + 2 * a.dim * a.mlp;
  const std::int64_t right_sides = a.kept == a.dtype ? 2 : 4;
  return recurrence_cost(a, number(tokens) * number(weights), tokens * (backward ? 16 : 8) * a.dim + weights,
                         tokens * (backward ? right_sides * a.dim + 3 * a.mlp : 3 * a.dim + a.mlp));
}

// Block recurrences: all products and the attention are inside the kernel. The windows have more rows than the blocks
// have tokens: accumulate computes the layer for all of them, forget for the tokens, and of the others queries, keys
// and values. Tensors moved for each row of the windows, and for each row of the layer:
//
//   forward   x; writes z, a1, qkv          writes r and the result; o, a2, u
//   backward  reads z, qkv                  reads r, o, u, and dy of the tokens
//             writes da1, dz, dqkv          writes da2, two right-hand sides, act, du
inline Cost cost_of(const BlockRecurrenceArgs& a) {
  const bool backward = a.dh != nullptr;
  const std::int64_t before = a.sequences * (a.time - 1) * a.block, tokens = before + a.sequences * a.last,
                     windows = tokens + (a.accumulates ? tokens : before),
                     rows = a.accumulates ? windows : tokens, projection = 3 * a.dim * a.dim,
                     rest = a.dim * a.dim + 2 * a.dim * a.mlp;
  // Of each sequence: the newer halves see the older ones; of accumulate these see themselves.
  const auto causal = [](std::int64_t count) { return count * (count + 1) / 2; };
  const std::int64_t own = (a.time - 1) * causal(a.block) + causal(a.last),
                     pairs = a.sequences * ((a.accumulates ? 2 : 1) * own +
                                            (a.time == 1 ? 0 : (a.time - 2) * a.block + a.last) * a.block);
  return recurrence_cost(
      a,
      number(windows) * number(projection) + number(rows) * number(rest) +
          number(pairs) * number((backward ? 4 : 2) * a.dim),
      (backward ? 3 * windows + 2 * rows + tokens : windows + 2 * rows + tokens) * a.dim + projection + rest,
      backward ? windows * 6 * a.dim + rows * (3 * a.dim + 3 * a.mlp)
               : windows * 4 * a.dim + rows * (2 * a.dim + a.mlp));
}

// The backward passes of these two add to rows.
inline Cost cost_of(const EmbeddingArgs& a) {
  Cost cost = moved(a.dtype, a.positions * a.dim);
  cost.bytes += moved(a.row_dtype, a.positions * a.dim).bytes;
  if (a.added != nullptr)
    cost.bytes += moved(a.dtype, elements_read(a.axes, a.sizes, a.strides) * a.dim).bytes;
  return cost;
}
// clang-format off
EDDY_MOVES(GatherArgs, 2 * a.outer * a.picks * a.inner)

EDDY_MOVES(RowNormArgs, (a.delta == nullptr ? 2 : 4) * a.rows * a.width)
inline Cost cost_of(const RowNormBackwardArgs& a) {
  const bool reads_more = a.dx_beta != 0 || a.dsum != nullptr;
  return moved(a.dtype, (a.dx == nullptr ? 2 : reads_more ? 4 : 3) * a.rows * a.width);
}
EDDY_MOVES(UnitNormArgs, 2 * a.rows * a.width)
EDDY_MOVES(UnitNormBackwardArgs, (3 + also_read(a.beta)) * a.rows * a.width)
EDDY_MOVES(DropoutArgs, (2 + also_read(a.beta)) * a.n)
EDDY_MOVES(TiledDropoutArgs, 2 * a.batch * a.time * a.dim)

EDDY_MOVES(SumArgs, a.outer * a.inner * (a.count + 1 + also_read(a.beta)))
inline Cost cost_of(const RowBlockSumsArgs& a) {
  Cost cost = moved(a.dtype, (a.saved == nullptr ? 1 : 3) * a.rows * a.width);
  cost.bytes += moved(Dtype::f32, summed_blocks(a.rows) * a.width).bytes;
  return cost;
}
EDDY_MOVES(PartialSumsArgs, a.tensors * (a.blocks + 1) * a.width)
EDDY_MOVES(MaxArgs, a.outer * a.inner * (a.count + 1))
EDDY_MOVES(MaxBackwardArgs, a.outer * a.inner * ((1 + also_read(a.beta)) * a.count + 1))

EDDY_MOVES(CrossEntropyArgs, a.rows * a.classes)
EDDY_MOVES(CrossEntropyMeanArgs, a.rows)
EDDY_MOVES(CrossEntropyBackwardArgs, (2 + also_read(a.beta)) * a.rows * a.classes)
EDDY_MOVES(CrossEntropyRowsArgs, 2 * a.rows * a.classes)

// Reads four gates and the cell, writes the cell and h; backward also reads both gradients.
EDDY_MOVES(LstmCellArgs, 7 * a.batch * a.hidden)
EDDY_MOVES(LstmCellBackwardArgs, 13 * a.batch * a.hidden)

// Reads a and b, writes h; beside the gradient of a, reads h and writes it.
EDDY_MOVES(ScanArgs,
           ((a.a == nullptr ? 2 : 3) + (a.da == nullptr ? 0 : 2)) * a.outer * a.time * a.inner)

EDDY_MOVES(RotaryArgs, (2 + also_read(a.beta)) * a.batch * a.time * a.heads * 2 * a.pairs)

// Moves c, z and the result; the LSTM gate also reads i and f.
EDDY_MOVES(GateArgs, (a.kind == GateKind::lstm ? 5 : 3) * a.rows * a.width)
EDDY_MOVES(GateBackwardArgs, (a.forward.kind == GateKind::lstm ? 9 : 5) * a.forward.rows * a.forward.width)

// The bytes of a mask do not count.
inline Cost cost_of(const SoftmaxArgs& a) {
  const std::int64_t bias =
      a.bias == nullptr ? 0 : a.width * elements_read(a.leading, a.shape, a.bias_strides);
  return moved(a.dtype, 2 * a.rows * a.width + bias);
}
EDDY_MOVES(SoftmaxBackwardArgs, (3 + also_read(a.beta)) * a.rows * a.width)
EDDY_MOVES(LogSoftmaxArgs, 2 * a.rows * a.width)
EDDY_MOVES(LogSoftmaxBackwardArgs, (3 + also_read(a.beta)) * a.rows * a.width)

EDDY_MOVES(MemoryMarkArgs, a.batch * a.size * a.heads * a.head_dim)
// Reads the scores once, and the keys and values of the pairs taken.
EDDY_MOVES(MemoryTakeArgs, a.queries * (a.score_stride + 4 * a.topk * a.head_dim))
// Reads and writes the keys and values of every entry.
EDDY_MOVES(MemoryWriteArgs, 4 * a.batch * a.size * a.width)

// Reads and writes the parameter and two moments, reads the gradient; writes the rounded parameter.
inline Cost cost_of(const AdamArgs& a) {
  Cost cost = moved(a.dtype, 7 * a.n);
  if (a.rounded != nullptr) cost.bytes += moved(Dtype::bf16, a.n).bytes;
  return cost;
}
// The same with one moment.
inline Cost cost_of(const MomentumArgs& a) {
  Cost cost = moved(a.dtype, 5 * a.n);
  if (a.rounded != nullptr) cost.bytes += moved(Dtype::bf16, a.n).bytes;
  return cost;
}
EDDY_MOVES(NormArgs, a.n)
inline Cost cost_of(const ScaleArgs& a) {
  Cost cost = moved(a.dtype, a.n);
  cost.bytes += moved(a.y_dtype, a.n).bytes;
  return cost;
}
// Unknown here: the number of parameters stands in tables in device memory.
inline Cost cost_of(const AdafactorArgs&) {
  return {};
}

EDDY_MOVES(UnaryArgs, (a.dy == nullptr ? 2 : 3) * a.elements)
inline Cost cost_of(const BinaryArgs& a) {
  const std::int64_t all = elements_of(a.rank, a.shape);
  const auto read = [&](const void* x, const std::int64_t* strides) {
    return x == nullptr ? 0 : elements_read(a.rank, a.shape, strides);
  };
  return moved(a.dtype, all + read(a.a, a.stride_a) + read(a.b, a.stride_b) + (a.dy == nullptr ? 0 : all));
}
EDDY_MOVES(WhereArgs, elements_of(a.rank, a.shape) + elements_read(a.rank, a.shape, a.stride_a) +
                          elements_read(a.rank, a.shape, a.stride_b))

// clang-format on
#undef EDDY_MOVES

}  // namespace eddy::work
