// Attention within a window of a block recurrence: every row sees itself and the rows before it. A warp has the queries
// of its 16 rows and, in the gradients, also their keys and values. Scores, probabilities times values, and the
// products of the gradients are mma.sync of bf16 with sums in f32.
//
// Queries, keys and values, and backward the gradient of the result, lie in shared memory as bf16: a row of the window
// after another, [q | k | v | do]. Of a head the columns of one or two steps of 16 are multiplied, with those of other
// heads as 0 in the left operand, so heads of 4 numbers go the same way as heads of 32.
//
//   forward    l = max + log2(sum) of a row's scores, in units of log2: kept for the backward
//   backward   p = 2^(score - l);  ds = p (dp - do . o) scale;  dq += ds k by the warp of the query;
//              dk += ds^T q and dv += p^T do by the warp of the key, which computes the scores again
//
// Sums over keys or queries go 16 at a time in order, so the bits depend on the sizes alone.
#pragma once

#include "cuda/recurrence/block_walk.cuh"

namespace eddy::cuda {

// The window's rows in shared memory, and what their attention needs.
struct AttentionRows {
  bf16* rows;
  int pitch, dim, heads, size;  // numbers from a row to the next; of a head
  int count;                    // of rows there is room for
  float* log_sums;              // backward: [heads][count], and behind it do . o
  const std::uint32_t* masks;   // [heads][count][mask_words]
  int mask_words;
  Dropout dropout;

  __device__ bf16* at(int row, int part) const { return rows + row * pitch + part * dim; }
  __device__ float scale() const { return 1.0f / sqrtf(static_cast<float>(size)); }
  __device__ float& dout_o(int head, int row) const { return log_sums[(heads + head) * count + row]; }
  __device__ float& log_sum(int head, int row) const { return log_sums[head * count + row]; }
  __device__ const std::uint32_t* mask(int head, int row) const {
    return masks + (head * count + row) * mask_words;
  }
};

// Attention of the warp's queries. The result takes the place of the queries; the logarithms go to log_sums[half] of
// the lane's rows, one for each head, where that is not null.
__device__ inline void attend(const AttentionRows& all, float* const (&log_sums)[2]) {
  const int warp = TileRows::warp(), first_row = TileRows::first_row(),
            lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  const float scale = all.scale() * kLog2OfE;
#pragma unroll 1
  for (int head = 0; head < all.heads; ++head) {
    const HeadColumns columns(head, all.size);
    float scores[kMostTiles][2][4] = {};
#pragma unroll 1
    for (int s = columns.step; s < columns.step + columns.steps; ++s) {
      std::uint32_t q[4];
      read_left(q, all.at(first_row, 0), all.pitch, s, columns);
#pragma unroll
      for (int c = 0; c < kMostTiles; ++c)
        if (c <= warp)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            std::uint32_t k[2];
            read_right(k, all.at(kTileRows * c + 8 * h, 1), all.pitch, s);
            multiply_matrices(scores[c][h], q, k[0], k[1]);
          }
    }
    float largest[2] = {-INFINITY, -INFINITY}, sums[2] = {}, inverse[2];
#pragma unroll
    for (int c = 0; c < kMostTiles; ++c)
      if (c <= warp)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int key = kTileRows * c + i / 4 * 8 + 2 * t + i % 2, half = i / 2 % 2;
          float& score = scores[c][i / 4][i % 4];
          score = key <= first_row + g + 8 * half ? score * scale : -INFINITY;
          largest[half] = fmaxf(largest[half], score);
        }
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2)
#pragma unroll
      for (float& of_row : largest) of_row = fmaxf(of_row, __shfl_xor_sync(0xffffffffu, of_row, distance));
    Fragments<kMostTiles> p;
#pragma unroll
    for (int c = 0; c < kMostTiles; ++c)
      if (c <= warp) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& weight = scores[c][i / 4][i % 4];
          weight = fast_exp2(weight - largest[i / 2 % 2]);
          sums[i / 2 % 2] += weight;
        }
        if (all.dropout.on)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const std::uint32_t bits =
                all.mask(head, first_row + g + 8 * half)[c / 2] >> (c % 2 * 16 + 2 * t);
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
              for (int e = 0; e < 2; ++e)
                scores[c][h][2 * half + e] *= kept_factor(all.dropout, bits, 8 * h + e);
          }
        set_left(p.at[c], scores[c]);
      }
    add_over_row(sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      inverse[half] = 1.0f / sums[half];
      if (t == 0 && log_sums[half] != nullptr)
        log_sums[half][head] = largest[half] + logf(sums[half]) * kLog2OfE;
    }
    __syncwarp();  // the queries have been read
    bf16* const to[2] = {all.at(first_row + g, 0), all.at(first_row + g + 8, 0)};
#pragma unroll 1
    for (int s = columns.step; s < columns.step + columns.steps; ++s) {
      float o[2][4] = {};
#pragma unroll
      for (int c = 0; c < kMostTiles; ++c)
        if (c <= warp) multiply_rows(o, p.at[c], all.at(kTileRows * c, 2), all.pitch, s);
      write_head(to, s, columns, o, inverse);
    }
    __syncwarp();
  }
}

// What a pair of query and key adds to the gradients.
struct PairGradient {
  float weight, dscore;  // the probability after dropout; the gradient of q k
};
// `seen`: the query sees the key, and others: over one key the softmax is constant. factor: of dropout.
__device__ inline PairGradient pair_gradient(float product, float dweight, float scale, float log_sum,
                                             float dout_o, float factor, bool seen, bool alone) {
  const float p = seen ? fast_exp2(product * scale * kLog2OfE - log_sum) : 0.0f;
  return {p * factor, alone ? 0.0f : p * (factor * dweight - dout_o) * scale};
}

// Gradients of the warp's queries, keys and values: dqkv[half] are where those of the lane's rows start, [3 dim]; null
// for rows that are not there.
__device__ inline void attention_gradients(const AttentionRows& all, int tiles, bf16* const (&dqkv)[2]) {
  const int warp = TileRows::warp(), first_row = TileRows::first_row(),
            lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  const float scale = all.scale();
  const float ones[2] = {1, 1};
#pragma unroll 1
  for (int head = 0; head < all.heads; ++head) {
    const HeadColumns columns(head, all.size);
    std::uint32_t left[2][kHeadSteps][4];  // of two operands
    const auto read_both = [&](int a, int b) {
#pragma unroll
      for (int s = 0; s < kHeadSteps; ++s)
        if (s < columns.steps) {
          read_left(left[0][s], all.at(first_row, a), all.pitch, columns.step + s, columns);
          read_left(left[1][s], all.at(first_row, b), all.pitch, columns.step + s, columns);
        }
    };
    // Sets the products of the warp's rows of the two operands with 16 rows of parts a and b of the window.
    const auto multiply_both = [&](float(&x)[2][4], float(&y)[2][4], int row, int a, int b) {
#pragma unroll
      for (int s = 0; s < kHeadSteps; ++s)
        if (s < columns.steps)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            std::uint32_t right[2];
            read_right(right, all.at(row + 8 * h, a), all.pitch, columns.step + s);
            multiply_matrices(x[h], left[0][s], right[0], right[1]);
            read_right(right, all.at(row + 8 * h, b), all.pitch, columns.step + s);
            multiply_matrices(y[h], left[1][s], right[0], right[1]);
          }
    };
    const auto add_product = [&](float(&sums)[kHeadSteps][2][4], const float(&of_pairs)[2][4], int row,
                                 int part) {
      std::uint32_t pairs[4];
      set_left(pairs, of_pairs);
#pragma unroll
      for (int s = 0; s < kHeadSteps; ++s)
        if (s < columns.steps) multiply_rows(sums[s], pairs, all.at(row, part), all.pitch, columns.step + s);
    };
    const auto write = [&](const float(&sums)[kHeadSteps][2][4], int part) {
      bf16* const to[2] = {dqkv[0] == nullptr ? nullptr : dqkv[0] + part * all.dim,
                           dqkv[1] == nullptr ? nullptr : dqkv[1] + part * all.dim};
#pragma unroll
      for (int s = 0; s < kHeadSteps; ++s)
        if (s < columns.steps) write_head(to, columns.step + s, columns, sums[s], ones);
    };

    float dq[kHeadSteps][2][4] = {};
    read_both(0, 3);
#pragma unroll 1
    for (int c = 0; c <= warp; ++c) {
      float scores[2][4] = {}, dweights[2][4] = {};
      multiply_both(scores, dweights, kTileRows * c, 1, 2);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = first_row + g + 8 * half;
        const float log_sum = all.log_sum(head, query), dout_o = all.dout_o(head, query);
        const std::uint32_t bits = all.dropout.on ? all.mask(head, query)[c / 2] >> (c % 2 * 16 + 2 * t) : 0;
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[h][2 * half + e];
            const float factor = all.dropout.on ? kept_factor(all.dropout, bits, 8 * h + e) : 1.0f;
            score = pair_gradient(score, dweights[h][2 * half + e], scale, log_sum, dout_o, factor,
                                  kTileRows * c + 8 * h + 2 * t + e <= query, query == 0)
                        .dscore;
          }
      }
      add_product(dq, scores, kTileRows * c, 1);
    }
    write(dq, 0);

    float dk[kHeadSteps][2][4] = {}, dv[kHeadSteps][2][4] = {};
    read_both(1, 2);
#pragma unroll 1
    for (int c = warp; c < tiles; ++c) {
      float scores[2][4] = {}, dweights[2][4] = {};
      multiply_both(scores, dweights, kTileRows * c, 0, 3);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int query = kTileRows * c + 8 * h + 2 * t + e;
          const float log_sum = all.log_sum(head, query), dout_o = all.dout_o(head, query);
          // Of the warp's 16 keys.
          const std::uint32_t bits =
              all.dropout.on ? all.mask(head, query)[warp / 2] >> (warp % 2 * 16 + g) : 0;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float &score = scores[h][2 * half + e], &dweight = dweights[h][2 * half + e];
            const float factor = all.dropout.on ? kept_factor(all.dropout, bits, 8 * half) : 1.0f;
            const PairGradient pair = pair_gradient(score, dweight, scale, log_sum, dout_o, factor,
                                                    first_row + g + 8 * half <= query, query == 0);
            score = pair.dscore;
            dweight = pair.weight;
          }
        }
      add_product(dk, scores, kTileRows * c, 0);
      add_product(dv, dweights, kTileRows * c, 3);
    }
    write(dk, 1);
    write(dv, 2);
  }
}

// ---- host

// What the kernels take: products in bf16, whole steps of 16 columns, windows of up to 128 rows, heads of up to 32
// numbers in fours.
inline bool takes_blocks(const RecurrenceSupportQuery& query) {
  return query.products == Dtype::bf16 && query.spreads_output && query.dim % 32 == 0 && query.dim <= 128 &&
         query.mlp % 32 == 0 && query.mlp <= 1 << 16 && query.block <= kMostBlockRows && query.heads > 0 &&
         query.dim % query.heads == 0 && query.dim / query.heads <= kWidestBlockHead &&
         query.dim / query.heads % 4 == 0;
}

}  // namespace eddy::cuda
