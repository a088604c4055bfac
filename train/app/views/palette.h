// The colours of all pages and pictures. A page names them as variables of its style sheet, light and dark; a picture
// of its own has the light ones.
#pragma once

#include <cstddef>
#include <string>

#include "train/record/figures.h"

namespace eddy::app {

struct PaletteColour {
  const char *light, *dark;
};

inline constexpr PaletteColour kPageColour{"#f6f7f9", "#101418"};
inline constexpr PaletteColour kCardColour{"#ffffff", "#181d23"};
inline constexpr PaletteColour kInkColour{"#1b1f24", "#e4e8ec"};
inline constexpr PaletteColour kSoftColour{"#5c6670", "#9aa5b1"};  // labels and remarks
inline constexpr PaletteColour kRuleColour{"#e1e5ea", "#2c343d"};  // borders and the grid of a chart
// Of the lines of a chart, which the style sheet also tells apart by their dashes.
inline constexpr PaletteColour kLineColours[training::kChartColours] = {
    {"#1f6feb", "#6cabff"}, {"#d9580d", "#ff9f54"}, {"#1a7f4b", "#5bd690"},
    {"#8250df", "#bfa0ff"}, {"#c2255c", "#ff8fb0"}, {"#0b7285", "#5fd3e3"}};

// The colour of the i-th line of a picture.
inline const char* picture_colour(std::size_t index) {
  return kLineColours[index % training::kChartColours].light;
}

// The variables --page, --card, --ink, --soft, --rule and --c0 to --c5 of a style sheet.
std::string palette_css();

}  // namespace eddy::app
