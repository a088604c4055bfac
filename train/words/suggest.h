// What an error suggests to someone who wrote another name than was meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace eddy::training {

// Returns the number of characters to insert, remove and replace, and of neighbours to swap, to turn one text into the
// other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Returns the one of `names` (keys "train.steps", flags "--train.steps" or "--top-k") that `word` probably means, or
// "". Sections and dashes count little: first comes a name that is the word behind them, then what other programs' word
// for it stands for ("lr"), then one that differs in a quarter of the letters or in one, then one of which the word is
// the beginning or the end. Of equals one of `section` goes first, then those of [train] and [data], then the first.
std::string suggest_name(std::string_view word, const std::vector<std::string>& names,
                         std::string_view section = "");

// Returns the one of `names` that is the fewest edits away, however many that are; the first of equals, "" without
// names. Capitals are small letters here, and - is _.
std::string nearest_match(std::string_view word, const std::vector<std::string>& names);

// Returns "nearest: NAME; " with the nearest match, if it is less than half of the word's letters away, or "". Unlike
// suggest_name, it is for values, of which one that is not near was not meant.
std::string suggest_value(std::string_view word, const std::vector<std::string>& names);

}  // namespace eddy::training
