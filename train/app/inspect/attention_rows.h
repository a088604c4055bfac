// Keeps the largest probabilities of each token and head, in 8 bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/app/inspect/inspection.h"
#include "train/app/inspect/named_segment.h"

namespace eddy::app {

class AttentionCollector {
 public:
  // errors: ValueError for a range that is not in the text.
  AttentionCollector(std::int64_t tokens, const InspectOptions& options);

  // Whether any token of a segment that begins here is wanted.
  bool wants(std::int64_t begin, std::int64_t time) const { return begin < to_ && begin + time > from_; }
  // Adds the attention of the next segment. An attention that no segment before it had gets room, and so do its passes
  // and keys; where options.to is -1 the range ends earlier then, but not before this segment ends.
  // errors: ValueError for a range that takes more than options.most_bytes.
  void add(const NamedSegment& segment);
  // Moves what was collected into an inspection.
  void take(Inspection& inspection) &&;

 private:
  // Calls visit(path, keys, token of the segment, pass, probabilities of its heads) for each token that attends; `keys`
  // is AttentionView::keys. Without `numbers` there are sizes, and no probabilities.
  template <class Visit>
  void visit_rows(const NamedSegment& segment, bool numbers, const Visit& visit) const;
  void make_room(const NamedSegment& segment);

  InspectOptions options_;
  std::int64_t from_, to_;
  std::map<std::string, AttentionView> views_;
};

}  // namespace eddy::app
