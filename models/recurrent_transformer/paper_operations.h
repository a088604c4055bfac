// The operations of a sample as the paper counts them.
#pragma once

#include <cstdint>

#include "models/recurrent_transformer/config.h"

namespace eddy::recurrent_transformer {

// The operations of the forward pass of `tokens` tokens by Table 1 of Kausik, "Recurrent Transformers" (2025). They are
// not all that a pass computes: a multiply-add counts once, and the MLP, the products of queries, keys and outputs but
// one, and the head are left out.
//
//   regular             L (N^2 D + N D^2)
//   unit_forget         L N (4 D + 2 D^2)
//   block_forget        L (N / K) (4 D K^2 + 2 K D^2)
//   block_accumulate    L (N / K) (4 D K^2 + 2 K D^2 + 2)
//
// errors: ValueError for another model.
double paper_operations(const Config& config, std::int64_t tokens);

}  // namespace eddy::recurrent_transformer
