// Tokens one by one, recorded and replayed where the device can do that: a token's work is asked for by one
// call, between the copy of the token to the device and that of the logits back. Model::stream is what is
// recorded (recorded_kinds.h), and what runs else.
//
// Two tokens are of one kind when the host does the same for both (models/stream_place.h): a model without
// blocks has one kind, one with blocks as many as there are places in a block. All graphs read and leave
// states of one layout in the same place, so nothing is copied between two recorded tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/step/recorded_kinds.h"

namespace eddy {

class CapturedStream {
 public:
  // A window of the Block-Recurrent models has 512 places or more. Graphs share the memory that they work in;
  // each has its own logits, and its launches, which the driver keeps.
  static constexpr std::size_t kMostGraphs = 1024;
  static constexpr std::size_t kMostKinds = 4096;  // that are counted

  // Of a model, which must outlive this. With `wanted` false, or on a device that cannot record, every token
  // goes through Model::stream.
  CapturedStream(const Model& model, bool wanted);
  ~CapturedStream();
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  // Moves the state past one token of each row. Returns the logits of the next: f32 [rows, n_out] on the CPU;
  // the same bits whether recorded or not.
  // aliasing: the tensors in `state` may be overwritten by the next call, which takes them over; copy what
  // must last.
  // errors: those of Model::stream.
  Tensor step(std::span<const std::int32_t> ids, State& state);

  // What a person should know and has not been told, once: why tokens are not recorded. Else "".
  std::string take_message() { return kinds_.take_message(); }
  // Graphs recorded so far.
  std::size_t graphs() const { return kinds_.graphs(); }

 private:
  struct Graph;

  // Where states of this one's layout lie for all graphs; made when there is none yet.
  State places_of(const State& state);
  // Nothing where no two tokens are of one kind.
  std::optional<std::string> kind_of(std::int64_t rows, const State& state);
  std::unique_ptr<Graph> record(std::int64_t rows, const State& state);
  Tensor replay(Graph& graph, std::span<const std::int32_t> ids, State& state);
  Tensor logits_of(const Tensor& tokens, State& state) const;

  const Model& model_;
  Device device_;
  bool wanted_;
  std::vector<State> places_;
  RecordedKinds<Graph> kinds_;
};

}  // namespace eddy
