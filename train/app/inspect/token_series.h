// Turns states and gates into a number for each token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/app/inspect/inspection.h"
#include "train/app/inspect/named_segment.h"

namespace eddy::app {

// Gets the numbers of a state behind the tokens [from, to) of the text, once for each token or block.
using StateVisit = std::function<void(const std::string& path, std::int64_t from, std::int64_t to,
                                      std::span<const double> numbers)>;

class SeriesCollector {
 public:
  explicit SeriesCollector(std::int64_t tokens, StateVisit visit = {})
      : tokens_(tokens), visit_(std::move(visit)) {}

  // Adds the values of the next segment. `goes_on`: its first token follows the last one of the segment before.
  void add(const NamedSegment& segment, bool goes_on);
  // Moves what was collected into an inspection.
  void take(Inspection& inspection) &&;

 private:
  // The state behind the last token or block.
  struct Before {
    std::vector<double> numbers;
    std::int64_t rows = 0;
  };

  std::vector<float>& series(TokenMeasure measure, const std::string& path);
  void visit(const std::string& path, std::int64_t from, std::int64_t to, std::span<const double> numbers) {
    if (visit_) visit_(path, from, to, numbers);
  }
  // Whether the text has all tokens of a block, the one of a call. What ends the text without filling one is counted.
  bool is_whole(const NamedSegment& segment, std::int64_t block, std::int64_t call);
  void add_bias(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls);
  void add_state(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls,
                 const ValueMeaning* meaning, bool goes_on);
  void add_slots(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls);
  void add_passes(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls,
                  const std::vector<Tensor>& places);
  void add_rows(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls,
                bool by_block);
  void add_moved(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls,
                 const std::string& state);
  void add_gate(const NamedSegment& segment, const std::string& path, const std::vector<Tensor>& calls,
                const ValueMeaning* meaning);

  std::int64_t tokens_;
  StateVisit visit_;
  std::map<std::pair<TokenMeasure, std::string>, std::vector<float>> series_;
  std::map<std::string, Before> before_;
  std::map<std::string, std::vector<std::int64_t>> begins_;  // tokens with which a state begins, by its path
  std::map<std::string, std::vector<double>>
      changes_;  // of each call of the segment, by the path of the state
  std::map<std::string, std::vector<float>> learned_;
  std::map<std::string, BiasCurve> biases_;
  std::set<std::string> unplaced_;
  std::int64_t unfilled_ = 0;
  bool has_padded_bias_ = false;
};

}  // namespace eddy::app
