// Work of many kinds that comes again: what runs as it is, what is recorded, and what is replayed.
//
//   kind of work seen        what runs
//   the first two times      the work as it is: sets up what is set up once (tables, plans, kernels)
//   the third time           recorded, then replayed
//   from then on             replayed
//
// Two pieces of work are of one kind when the host does the same for both; its text says so. A few kinds are
// recorded; when more turn up, the others run as they are.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "tensor/base/error.h"

namespace eddy {

inline constexpr int kRecordedWarmUp = 2;  // times that a kind runs as it is

// How many kinds are recorded and how many counted, and the words for them: "steps", "(shapes, flags)".
struct KindLimits {
  std::size_t graphs, kinds;
  const char *things, *what_differs;
};

// Graph: a recording and where its inputs and results lie.
template <class Graph>
class RecordedKinds {
 public:
  explicit RecordedKinds(const KindLimits& limits) : limits_(limits) {}

  // The recording of a kind, made by `record` (a unique_ptr<Graph>) when it is time; null where the work is
  // to run as it is. A recording that fails is not tried again.
  template <class Record>
  Graph* find(const std::string& text, Record&& record) {
    Kind* const kind = kind_of(text);
    if (kind == nullptr) return nullptr;
    if (kind->graph == nullptr && !kind->tried && kind->seen++ >= kRecordedWarmUp) {
      kind->tried = true;
      if (graphs_ == limits_.graphs) {
        say(std::string(limits_.things) + " of more than " + std::to_string(limits_.graphs) + " kinds " +
            limits_.what_differs + ": the others run uncaptured");
      } else {
        try {
          kind->graph = record();
          ++graphs_;
        } catch (const Error& error) {
          say(std::string(limits_.things) + " run uncaptured: " + error.what());
        }
      }
    }
    return kind->graph.get();
  }

  // What a person should know and has not been told, once: why work is not recorded. Else "".
  void say(const std::string& text) {
    if (!said_) message_ = text;
    said_ = true;
  }
  std::string take_message() { return std::exchange(message_, std::string()); }
  std::size_t graphs() const { return graphs_; }

 private:
  struct Kind {
    int seen = 0;
    bool tried = false;  // recording
    std::unique_ptr<Graph> graph;
  };

  Kind* kind_of(const std::string& text) {
    if (const auto found = kinds_.find(text); found != kinds_.end()) return &found->second;
    if (kinds_.size() == limits_.kinds) {
      say("more than " + std::to_string(limits_.kinds) + " kinds of " + limits_.things + " " +
          limits_.what_differs + ": new ones run uncaptured");
      return nullptr;
    }
    return &kinds_[text];
  }

  KindLimits limits_;
  std::unordered_map<std::string, Kind> kinds_;
  std::size_t graphs_ = 0;
  std::string message_;
  bool said_ = false;
};

}  // namespace eddy
