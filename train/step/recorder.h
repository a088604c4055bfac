// Work that is done again and again, such as a training step, captured once and replayed where the device
// supports it (ops/core/capture.h). The results have the same bits either way.
//
// Two calls have one signature when the host does the same for both.
//
//   a signature is seen      what runs
//   the first two times      the work itself: it allocates tables, makes plans, loads kernels
//   the third time           it is captured, then replayed
//   from then on             replayed: the inputs are sent by one copy, the state is put into the memory that
//                            the graph reads, and one graph is launched
//
//   part of the signature   what the caller names, shapes, on the host the contents of the state
//   data of a replay        the contents of the inputs, the state on the device
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/state.h"
#include "models/params.h"

namespace eddy::training {

inline constexpr int kCaptureWarmUp = 2;              // runs of a signature before it is captured
inline constexpr std::size_t kMostSignatures = 4096;  // remembered

struct RecorderOptions {
  bool wanted = true;  // false: everything runs as it is, as on a device that does not support capture
  const char* work = "steps";  // what is captured, for messages
  std::size_t graphs = 64;     // captured at most
  // Whether the state after the work lies where the state before it lay, so that nothing is copied between
  // two replays. Counts on the host (i64) are then no part of the signature: a replay advances them by as much as
  // the captured work did.
  bool in_place = false;
};

class Recorder {
 public:
  // `params`, which the work reads and may write, must outlive this object.
  explicit Recorder(const ParamStore& params, const RecorderOptions& options = {});
  ~Recorder();

  // Runs work(state), which must not wait for the device, and returns its result. `inputs` point to tensors on
  // the host, or undefined ones, that the work reads; they become tensors on the device. `state` becomes the
  // state after the work. Without a signature the work is not captured.
  // aliasing: the next call may overwrite the result's tensors and the state; copy what must last.
  // errors: those of the work.
  template <class Work>
  auto run(const std::optional<std::string>& signature, const std::vector<Tensor*>& inputs, State& state,
           const Work& work) {
    using Result = decltype(work(state));
    return *std::static_pointer_cast<const Result>(run_any(
        signature, inputs, state, [&work](State& s) { return std::make_shared<const Result>(work(s)); }));
  }

  // Whether anything may be captured.
  bool wanted() const { return options_.wanted; }
  // Sets the message for the user; only the first one counts.
  void set_message(const std::string& text);
  // Why work is not captured, returned once; else "".
  std::string take_message();
  // The number of graphs captured so far.
  std::size_t graphs() const { return graphs_; }

 private:
  using AnyResult = std::shared_ptr<const void>;
  using AnyWork = std::function<AnyResult(State&)>;
  class Inputs;
  struct Graph;
  struct Entry {
    int seen = 0;
    bool tried = false;  // to capture it
    std::unique_ptr<Graph> graph;
  };

  AnyResult run_any(const std::optional<std::string>& signature, const std::vector<Tensor*>& inputs,
                    State& state, const AnyWork& work);
  Graph* find(const std::string& signature, const std::vector<Tensor*>& inputs, const State& state,
              const AnyWork& work);
  std::unique_ptr<Graph> record(const std::vector<Tensor*>& inputs, const State& state, const AnyWork& work);
  AnyResult replay(Graph& graph, const std::vector<Tensor*>& inputs, State& state);
  // The memory that all graphs use for states of this layout; allocated at the first call.
  State places_of(const State& state);

  const ParamStore& params_;
  RecorderOptions options_;
  std::vector<State> places_;
  std::unordered_map<std::string, Entry> entries_;
  std::size_t graphs_ = 0;
  std::optional<std::string> message_;  // empty once it is taken
};

}  // namespace eddy::training
