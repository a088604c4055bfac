// Generates token by token with captured graphs, where the device supports it (train/step/graph_cache.h).
// For each token: copy the token to the device, replay one graph, copy the logits back. What is captured is
// Model::stream, which also runs eagerly otherwise.
//
// Two tokens are of one kind when the host does the same for both (Model::stream_place): a model without
// blocks has one kind, one with blocks has one for each position in a block. All graphs share one memory for
// the states of each layout, so nothing is copied between two replayed tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/step/graph_cache.h"

namespace eddy {

class CapturedStream {
 public:
  // A window of the Block-Recurrent models has 512 positions or more. Graphs share their working memory; each
  // has its own logits, and its launches in the driver's memory.
  static constexpr std::size_t kMaxGraphs = 1024;
  static constexpr std::size_t kMaxKinds = 4096;  // remembered

  // `model` must outlive this object. With `wanted` false, or on a device that does not support capture,
  // every token runs through Model::stream eagerly.
  CapturedStream(const Model& model, bool wanted);
  ~CapturedStream();
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  // The logits of the next token after one token of each row: f32 [rows, n_out] on the CPU. Advances `state`.
  // Captured or not, the bits are the same.
  // aliasing: the next call may overwrite the tensors in `state`; copy what must last.
  // errors: those of Model::stream.
  Tensor step(std::span<const std::int32_t> ids, State& state);

  // Why tokens are not captured, returned once; else "".
  std::string take_message() { return kinds_.take_message(); }
  // The number of graphs captured so far.
  std::size_t graphs() const { return kinds_.graphs(); }

 private:
  struct Graph;

  // The memory that all graphs use for states of this layout; allocated at the first call.
  State places_of(const State& state);
  // The kind of the next token; nullopt when no two tokens of the model are of one kind.
  std::optional<std::string> kind_of(std::int64_t rows, const State& state);
  std::unique_ptr<Graph> record(std::int64_t rows, const State& state);
  Tensor replay(Graph& graph, std::span<const std::int32_t> ids, State& state);
  Tensor logits_of(const Tensor& tokens, State& state) const;

  const Model& model_;
  Device device_;
  bool wanted_;
  std::vector<State> places_;
  GraphCache<Graph> kinds_;
};

}  // namespace eddy
