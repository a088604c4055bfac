// Which tensor of a foreign file becomes which parameter, as a TOML file says it (README.md shows one). A '*' in a
// pattern stands for any text. A pair of names has one on both sides, which is the same text there, or none; lists may
// have several in a pattern. A pattern of a list that fits no name is refused, unless it ends in '?'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/params.h"
#include "train/config/config_file.h"

namespace eddy::app {

// A pattern of a list, without its '?'.
struct NamePattern {
  std::string text;
  bool may_fit_none = false;
  std::string place{};  // in the file, for errors
};

struct NameMap {
  std::string file;                                        // for errors
  std::vector<std::pair<std::string, std::string>> names;  // theirs, ours
  std::vector<NamePattern> fresh;                          // ours that keep their initial values
  std::vector<NamePattern> unused;                         // theirs that nothing needs
  std::vector<NamePattern> halves_to_pairs;                // ours whose rows are permuted
};

// errors: those of read_config_file; ConfigError for an unknown key, a value of another type, and a pair with
// several '*', or with one on one side alone.
NameMap read_name_map(const std::string& file);
// The same of a map that was read.
NameMap name_map_of(const training::ConfigSource& source);

// Whether a name fits a pattern with at most one '*'; `part` is then what stands in its place.
bool matches(const std::string& pattern, const std::string& name, std::string& part);

// x [heads * size, ...] with the rows of each head in another order:
// row 2 i + j of a head is row i + j * size / 2 of x.
// errors: ShapeError unless the rows are heads of an even size.
Tensor halves_to_pairs(const Tensor& x, std::int64_t head_size);
// The inverse.
Tensor pairs_to_halves(const Tensor& x, std::int64_t head_size);

// The parameters' values under the names of the other program, in its order of rows: what mapped_weights reads again.
// errors: ConfigError for a parameter without a name.
std::map<std::string, Tensor> renamed_weights(const NameMap& map, const ParamStore& params,
                                              std::int64_t head_size);

struct MappedWeights {
  std::map<std::string, Tensor> values;  // of all parameters
  std::vector<std::string> copies;  // "a is a copy of b": tensors that the model needs once, as a tied head
};

// The parameters' values by name, with those of `theirs` in their places. `head_size`: that of the model's heads.
// errors: ConfigError with the place of a pattern that fits no name; FormatError that lists all parameters without a
// tensor, tensors without a parameter (with the setting that leaves it out, if one does), parameters with two, shapes
// that differ, and numbers that are not finite as the model has them.
MappedWeights mapped_weights(const NameMap& map, const std::map<std::string, Tensor>& theirs,
                             const ParamStore& params, std::int64_t head_size);

}  // namespace eddy::app
