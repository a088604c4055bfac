// One pre-norm layer of the Block-Recurrent family, in its vertical direction:
//
//   u       = drop(RMSNorm(x))
//   q, k, v = u Wq^T, u Wk^T, u Wv^T
//   a1      = attend(q, K, V)                   the `window` tokens before each token, never the token itself
//   a2      = attend(u Wcross^T, K_s, V_s)      only in layers that read a state; no bias, no mask
//   x       = x + [a1, a2] Wo^T
//   x       = x + drop(relu(RMSNorm(x) Wup^T) Wdown^T)
//
// The caller chooses the earlier keys in K and the states that are read: for a whole segment at once, for one
// block, or for the few tokens of a stream.
// Source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, section 3.1, with the mask, the norms and
// the place of the bias as in the authors' code.
#pragma once

#include <optional>
#include <string>

#include "models/block_recurrent/cell.h"
#include "models/block_recurrent/memory.h"
#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/recompute.h"

namespace eddy {

// What all layers of one call share.
//
// Dropout masks of activations are one tile of up to 128 positions, the same for all sequences and repeated
// along the segment, as in the authors' code. Masks of attention probabilities differ: the authors use
// one mask [heads, window, 2 window] for all sequences and blocks. Here each probability has its own random
// number, in the numbering of ops/attention/attention.h, so the literal and the fast form draw different
// masks.
struct BlockCall {
  Tensor bias_index;     // of distance_bias
  Tensor final_norm;     // the final norm's weight times the factor of the logits
  bool literal = false;  // attention from products and a softmax: the literal form
  Recompute recompute = Recompute::none;
  DropoutSite drop;        // of activations
  DropoutSite attn_drop;   // of attention probabilities
  std::uint64_t draw = 0;  // which masks: the segment's number, with feedback the block's
  std::int64_t first = 0;  // the position of the first row in its segment or block
  std::int64_t tile = 1;   // positions after which masks repeat

  // x [batch, time, dim] with dropout in training, x itself in evaluation.
  Tensor dropped(const Tensor& x, const std::string& path) const;
};

// Projections of tokens, [batch, time, heads, head_dim] each; all but v are unit vectors. state_q is
// undefined in layers that read no state.
struct TokenHeads {
  Tensor q, k, v, state_q;
  std::optional<double> unit_eps{};  // if set, q and k are not unit vectors yet: attention makes them so

  // The keys of the last rows as attention compares them, as constants.
  Tensor last_keys(std::int64_t rows) const;
};

class BlockRecurrentLayer {
 public:
  BlockRecurrentLayer(const ParamScope& layers, std::int64_t index, const block_recurrent::Config& config);

  // Queries, keys and values of the tokens. With `unit_later` they need not be unit vectors yet.
  // shapes: x [batch, time, dim].
  TokenHeads project(const Tensor& x, const BlockCall& call, bool unit_later = false) const;
  // The layer's output for x, whose projections are `heads`. tokens: keys and values; the last `time` rows
  // belong to x. read: the states that n equal parts of the tokens read; undefined if there are none.
  // entries: null without a memory.
  // shapes: read [batch n, states, heads, head_dim].
  Tensor finish(const Tensor& x, const TokenHeads& heads, const KeysValues& tokens, const StateRead& read,
                const MemoryEntries* entries, const BlockCall& call) const;

  const std::string path;
  const bool reads_state;
  std::optional<RecurrentCell> cell;
  std::optional<ExternalMemory> memory;

 private:
  HeadRules rules_;
  double eps_;
  std::int64_t window_;
  Tensor attn_norm_, wq_, wk_, wv_, wo_, scale_, rel_bias_, cross_wq_, cross_scale_;
  Tensor mlp_norm_;
  std::optional<FeedForward> mlp_;
};

}  // namespace eddy
