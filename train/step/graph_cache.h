// Decides when repeated work runs eagerly, is captured, or is replayed. Work is sorted into kinds, which are
// named by texts. Two pieces of work are of the same kind if the host does the same for both.
//
//   a kind occurs            what runs
//   the first two times      the work itself, eagerly: it allocates tables, makes plans, loads kernels
//   the third time           the work is captured, then replayed
//   from then on             the work is replayed
//
// At most GraphCacheLimits::graphs kinds are captured; the others run eagerly.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "tensor/base/error.h"

namespace eddy {

inline constexpr int kCaptureWarmUp = 2;  // eager runs of a kind before it is captured

// How many kinds are captured and how many are remembered, and how messages name them: "steps", "(shapes,
// flags)".
struct GraphCacheLimits {
  std::size_t graphs, kinds;
  const char *work_name, *kind_parts;
};

// Graph: a captured graph with its inputs and results.
template <class Graph>
class GraphCache {
 public:
  explicit GraphCache(const GraphCacheLimits& limits) : limits_(limits) {}

  // Returns the graph of a kind, or null if the work must run eagerly. At the third occurrence of a kind,
  // `record` makes the graph (it returns a unique_ptr<Graph>). A capture that fails is not tried again.
  template <class Record>
  Graph* find(const std::string& text, Record&& record) {
    Kind* const kind = kind_of(text);
    if (kind == nullptr) return nullptr;
    if (kind->graph == nullptr && !kind->tried && kind->seen++ >= kCaptureWarmUp) {
      kind->tried = true;
      if (graphs_ == limits_.graphs) {
        set_message(std::string(limits_.work_name) + " of more than " + std::to_string(limits_.graphs) +
                    " kinds " + limits_.kind_parts + ": the others run uncaptured");
      } else {
        try {
          kind->graph = record();
          ++graphs_;
        } catch (const Error& error) {
          set_message(std::string(limits_.work_name) + " run uncaptured: " + error.what());
        }
      }
    }
    return kind->graph.get();
  }

  // Sets the message for the user; only the first one counts.
  void set_message(const std::string& text) {
    if (!has_message_) message_ = text;
    has_message_ = true;
  }
  // The reason why work is not captured, returned once; else "".
  std::string take_message() { return std::exchange(message_, std::string()); }
  // The number of graphs captured so far.
  std::size_t graphs() const { return graphs_; }

 private:
  struct Kind {
    int seen = 0;
    bool tried = false;  // to capture it
    std::unique_ptr<Graph> graph;
  };

  Kind* kind_of(const std::string& text) {
    if (const auto found = kinds_.find(text); found != kinds_.end()) return &found->second;
    if (kinds_.size() == limits_.kinds) {
      set_message("more than " + std::to_string(limits_.kinds) + " kinds of " + limits_.work_name + " " +
                  limits_.kind_parts + ": new ones run uncaptured");
      return nullptr;
    }
    return &kinds_[text];
  }

  GraphCacheLimits limits_;
  std::unordered_map<std::string, Kind> kinds_;
  std::size_t graphs_ = 0;
  std::string message_;
  bool has_message_ = false;
};

}  // namespace eddy
