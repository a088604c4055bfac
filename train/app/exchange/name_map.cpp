// Reads maps and applies them.
#include "train/app/exchange/name_map.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "autograd/tape.h"
#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"
#include "train/words/human_text.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

std::int64_t stars_in(const std::string& pattern) {
  return std::count(pattern.begin(), pattern.end(), '*');
}

// Whether a name fits a pattern with any number of '*': what stands between them follows in this order.
bool fits_pattern(const std::string& pattern, const std::string& name) {
  std::string part;
  if (stars_in(pattern) < 2) return matches(pattern, name, part);
  const std::size_t first = pattern.find('*'), last = pattern.rfind('*');
  const std::string before = pattern.substr(0, first), after = pattern.substr(last + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return false;
  std::size_t at = before.size();
  const std::size_t end = name.size() - after.size();
  for (std::size_t star = first; star < last;) {
    const std::size_t next = pattern.find('*', star + 1);
    const std::string piece = pattern.substr(star + 1, next - star - 1);
    const std::size_t found = name.find(piece, at);
    if (found == std::string::npos || found + piece.size() > end) return false;
    at = found + piece.size();
    star = next;
  }
  return true;
}

bool matches_any(const std::vector<NamePattern>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const NamePattern& pattern) { return fits_pattern(pattern.text, name); });
}

// The patterns of a list of the file.
std::vector<NamePattern> patterns_of(const std::vector<std::string>& texts, const char* key,
                                     const ConfigSource& file) {
  std::vector<NamePattern> patterns;
  for (std::string text : texts) {
    const bool may_fit_none = text.ends_with('?');
    if (may_fit_none) text.pop_back();
    patterns.push_back(
        {std::move(text), may_fit_none, file.place(fmt::format("{}.{}", key, patterns.size()))});
  }
  return patterns;
}

// errors: ConfigError for a pattern of the list `key` that fits none of the names, each of which is a `what`.
void check_fits(const std::vector<NamePattern>& patterns, const char* key,
                const std::map<std::string, Tensor>& tensors, const char* what) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  for (const NamePattern& pattern : patterns)
    if (!pattern.may_fit_none && std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return fits_pattern(pattern.text, name);
        }))
      fail<ConfigError>("{}: {} has {}, which fits no {} ({}a '?' at its end says that it may fit none)",
                        pattern.place, key, quote_text(pattern.text), what,
                        suggest_value(pattern.text, names));
}

std::string with_part(std::string pattern, const std::string& part) {
  if (const std::size_t star = pattern.find('*'); star != std::string::npos) pattern.replace(star, 1, part);
  return pattern;
}

// How many numbers are not finite once they are of this type.
std::int64_t not_finite(const Tensor& x, Dtype dtype) {
  if (!is_floating(x.dtype())) return 0;  // load_parameters refuses it
  const Tensor kept = raw::cast(x, dtype);
  if (all_finite(kept)) return 0;
  const std::vector<double> numbers = raw::cast(kept, Dtype::f64).to_vector<double>();
  return std::ranges::count_if(numbers, [](double number) { return !std::isfinite(number); });
}

// Of a file whose names are those of the map but for what they begin with: what to change. Programs put "module."
// before all names, or leave "model." out.
std::string prefix_advice(const NameMap& map, const std::map<std::string, Tensor>& theirs) {
  const auto most_fit = [&](const auto& renamed) {
    std::string part;
    const auto fits = [&](const auto& pair) {
      const std::string name = renamed(pair.first);
      return std::ranges::any_of(map.names, [&](const auto& own) { return matches(own.first, name, part); });
    };
    return 2 * std::ranges::count_if(theirs, fits) > std::ssize(theirs);
  };
  if (theirs.empty() || most_fit([](const std::string& name) { return name; })) return "";
  const std::string& first = theirs.begin()->first;
  for (std::size_t dot = first.find('.'); dot != std::string::npos; dot = first.find('.', dot + 1)) {
    const std::string prefix = first.substr(0, dot + 1);
    if (most_fit(
            [&](const std::string& name) { return name.starts_with(prefix) ? name.substr(dot + 1) : ""; }))
      return fmt::format("; its names lack {:?}, with which those of the file begin (write it before them)",
                         prefix);
  }
  for (const auto& [pattern, own] : map.names)
    if (const std::string prefix = pattern.substr(0, pattern.find('.') + 1);
        most_fit([&](const std::string& name) { return prefix + name; }))
      return fmt::format("; its names begin with {:?}, which those of the file lack (take it away)", prefix);
  return "";
}

// x with the rows of each head in another order: row i of a head is row from(i) of it.
template <class From>
Tensor with_rows_from(const Tensor& x, std::int64_t head_size, const char* name, const From& from) {
  if (x.rank() < 1 || head_size < 2 || head_size % 2 != 0 || x.dim(0) % head_size != 0)
    fail<ShapeError>("{}: {} rows are no heads of {} (whole heads of an even size)", name,
                     x.rank() < 1 ? 0 : x.dim(0), head_size);
  const NoGrad no_grad;
  const Tensor rows = raw::contiguous(x), moved = raw::copy(rows);
  const std::int64_t count = x.dim(0);
  const std::size_t bytes = count == 0 ? 0
                                       : static_cast<std::size_t>(rows.elements() / count) *
                                             static_cast<std::size_t>(dtype_bytes(rows.dtype()));
  for (std::int64_t to = 0; to < count; ++to) {
    const std::int64_t within = to % head_size;
    std::memcpy(static_cast<char*>(moved.raw_data()) + static_cast<std::size_t>(to) * bytes,
                static_cast<const char*>(rows.raw_data()) +
                    static_cast<std::size_t>(to - within + from(within)) * bytes,
                bytes);
  }
  return moved;
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor one = raw::contiguous(a), other = raw::contiguous(b);
  const auto bytes = static_cast<std::size_t>(one.elements() * dtype_bytes(one.dtype()));
  return bytes == 0 || std::memcmp(one.raw_data(), other.raw_data(), bytes) == 0;
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name, std::string& part) {
  part.clear();
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  const std::string before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return false;
  part = name.substr(before.size(), name.size() - before.size() - after.size());
  return true;
}

NameMap read_name_map(const std::string& file) {
  return name_map_of(read_config_file(file));
}

NameMap name_map_of(const ConfigSource& source) {
  NameMap map;
  map.file = source.name;
  std::vector<std::string> fresh, unused, halves;
  std::map<std::string, std::vector<std::string>> names;
  KeyList keys;
  keys.add("fresh", fresh, "Parameters that keep their initial values");
  keys.add("unused", unused, "Tensors that nothing needs");
  keys.add("halves_to_pairs", halves, "Parameters whose rows are permuted");
  keys.add("names", names, "For each tensor the parameters that it becomes");
  read_table(keys, source);
  map.fresh = patterns_of(fresh, "fresh", source);
  map.unused = patterns_of(unused, "unused", source);
  map.halves_to_pairs = patterns_of(halves, "halves_to_pairs", source);
  for (const auto& [theirs, ours] : names)
    for (const std::string& one : ours) {
      const std::string place = source.place("names." + theirs);
      if (stars_in(theirs) > 1 || stars_in(one) > 1)
        fail<ConfigError>("{}: {:?} = {:?} has several '*' (at most one)", place, theirs, one);
      if (stars_in(theirs) != stars_in(one))
        fail<ConfigError>("{}: {:?} and {:?} differ in their '*' (both have one, or none)", place, theirs,
                          one);
      map.names.emplace_back(theirs, one);
    }
  return map;
}

Tensor halves_to_pairs(const Tensor& x, std::int64_t head_size) {
  return with_rows_from(x, head_size, "halves_to_pairs",
                        [half = head_size / 2](std::int64_t row) { return row / 2 + row % 2 * half; });
}

Tensor pairs_to_halves(const Tensor& x, std::int64_t head_size) {
  return with_rows_from(x, head_size, "pairs_to_halves",
                        [half = head_size / 2](std::int64_t row) { return row % half * 2 + row / half; });
}

std::map<std::string, Tensor> renamed_weights(const NameMap& map, const ParamStore& params,
                                              std::int64_t head_size) {
  std::map<std::string, Tensor> theirs;
  for (const auto& [name, tensor] : parameter_map(params)) {
    std::string part;
    const auto pair =
        std::ranges::find_if(map.names, [&](const auto& names) { return matches(names.second, name, part); });
    if (pair == map.names.end())
      fail<ConfigError>("export: {} has no name for {} (export the model in Eddy's own form)", map.file,
                        name);
    theirs.emplace(with_part(pair->first, part),
                   matches_any(map.halves_to_pairs, name) ? pairs_to_halves(tensor, head_size) : tensor);
  }
  return theirs;
}

MappedWeights mapped_weights(const NameMap& map, const std::map<std::string, Tensor>& theirs,
                             const ParamStore& params, std::int64_t head_size) {
  const std::map<std::string, Tensor> ours = parameter_map(params);
  check_fits(map.halves_to_pairs, "halves_to_pairs", ours, "parameter of the model");
  check_fits(map.fresh, "fresh", ours, "parameter of the model");
  check_fits(map.unused, "unused", theirs, "tensor of the weights");
  MappedWeights result{ours, {}};
  std::map<std::string, std::string> taken;  // ours: theirs
  std::vector<std::string> extra, missing, shaped, twice, wild;
  std::vector<std::pair<std::string, std::string>> omitted;  // theirs, and why the model lacks its parameter
  for (const auto& [name, tensor] : theirs) {
    bool used = false;
    std::string part, why;
    for (const auto& [pattern, own] : map.names) {
      if (!matches(pattern, name, part)) continue;
      const std::string target = with_part(own, part);
      const auto place = ours.find(target);
      if (place == ours.end()) {
        if (const auto left_out = params.omitted().find(target); left_out != params.omitted().end())
          why = left_out->second;
        continue;
      }
      used = true;
      if (const auto [before, fresh] = taken.emplace(target, name); !fresh) {
        twice.push_back(fmt::format("{} (of {} and {})", target, before->second, name));
        continue;
      }
      if (tensor.shape() != place->second.shape()) {
        shaped.push_back(fmt::format("{} {} for {} {}", name, to_string(tensor.shape()), target,
                                     to_string(place->second.shape())));
        continue;
      }
      if (const std::int64_t count = not_finite(tensor, place->second.dtype()); count > 0)
        wild.push_back(fmt::format("{} ({} of {})", name, grouped(count), grouped(tensor.elements())));
      result.values[target] =
          matches_any(map.halves_to_pairs, target) ? halves_to_pairs(tensor, head_size) : tensor;
    }
    if (used || matches_any(map.unused, name)) continue;
    if (why.empty())
      extra.push_back(name);
    else
      omitted.emplace_back(name, why);
  }
  for (const auto& [name, why] : omitted) {
    const Tensor& tensor = theirs.at(name);
    const auto original = std::ranges::find_if(
        taken, [&](const auto& pair) { return equal_bits(tensor, theirs.at(pair.second)); });
    if (original != taken.end())
      result.copies.push_back(fmt::format("{} is a copy of {}", name, original->second));
    else
      extra.push_back(fmt::format("{} ({})", name, why));
  }
  for (const auto& [name, tensor] : ours)
    if (!taken.contains(name) && !matches_any(map.fresh, name)) missing.push_back(name);
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty())
      problems += fmt::format("{}{}: {}", problems.empty() ? "" : "; ", what, listed(names));
  };
  add("parameters that no tensor becomes, and that are not fresh", missing);
  add("tensors that become no parameter, and are not unused", extra);
  add("shapes that differ", shaped);
  add("parameters that two tensors become", twice);
  add("tensors with numbers that are not finite (NaN, infinite, or beyond the largest of f32)", wild);
  if (!problems.empty())
    fail<FormatError>("import: {} does not fit: {}{}", map.file, problems, prefix_advice(map, theirs));
  return result;
}

}  // namespace eddy::app
