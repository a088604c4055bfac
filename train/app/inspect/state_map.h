// A map of a state along a text: which of its numbers to show, and what they are. A number is worth showing if it
// differs from what it would be without the state of earlier calls, where that state saves the model something:
//
//   score = (sum of w |x - x'|) / (sum of w) / spread
//
// x is the number behind a token or block, x' the same in a reading without the state, w the nats that the state saves
// there, if it saves any, and `spread` the standard deviation of x: the score counts in standard deviations. Where
// nothing was read without the state, or it saves nothing, the score is the spread alone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace eddy::app {

// One number of a state, and its shade in each column of the map.
struct StateRow {
  std::string path;        // of the state
  std::int64_t index = 0;  // of the number among those of a token or a block
  double score = 0;
  double low = 0, high = 0;           // of shades 0 and 254; what lies beyond has the shade of the end
  std::vector<std::uint8_t> shade{};  // the mean over the tokens of a column; 255: none

  // "layers.0.state[17]".
  std::string name() const;
};

struct StateMap {
  std::int64_t columns = 0;  // equal parts of the text
  bool by_gain = false;      // whether the score is of what the state saves
  std::vector<StateRow> rows{};
  struct Part {
    std::string path;
    std::int64_t numbers = 0, shown = 0;
  };
  std::vector<Part> parts{};  // all states, with those of which no number is shown
};

// Chooses the numbers of a map call by call. Its memory grows with the numbers of the states, not with the text.
class StateChooser {
 public:
  // A state behind the tokens [from, to), as it is, and in the reading without the state of earlier calls.
  void visit(const std::string& path, std::int64_t from, std::int64_t to, std::span<const double> numbers);
  void visit_cleared(const std::string& path, std::int64_t from, std::span<const double> numbers);
  // Ends a call that begins at a token: `saved` are the nats that the state saves at each of its tokens, not a number
  // where there are none.
  void end_call(std::int64_t begin, std::span<const double> saved);
  // The numbers with the largest scores, the largest first, and all states; without shades.
  StateMap choose(std::int64_t most) const;

 private:
  struct Behind {
    std::int64_t to = 0;
    std::vector<double> numbers, cleared;
  };
  struct Sums {
    double count = 0, weight = 0;
    std::vector<double> origin, sum, squares, differs;  // of each number, counted from its first value
  };
  std::map<std::string, std::map<std::int64_t, Behind>> call_;
  std::map<std::string, Sums> sums_;
};

// Fills the shades of a map in one more reading.
class StateShader {
 public:
  // Columns: one for each token, or as many as there is room for `bytes` shades.
  StateShader(StateMap map, std::int64_t tokens, std::int64_t bytes);
  void visit(const std::string& path, std::int64_t from, std::int64_t to, std::span<const double> numbers);
  bool has_rows() const { return !map_.rows.empty(); }
  StateMap take() &&;

 private:
  StateMap map_;
  std::int64_t tokens_;
  std::vector<std::vector<double>> sum_;  // [rows][columns]
  std::vector<std::vector<float>> count_;
};

}  // namespace eddy::app
