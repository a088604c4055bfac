// The palette as a style sheet.
#include "train/app/views/palette.h"

#include <fmt/format.h>

namespace eddy::app {
namespace {

std::string variables(const char* PaletteColour::*scheme) {
  std::string css;
  const auto add = [&](const std::string& name, const PaletteColour& colour) {
    css += fmt::format(" --{}: {};", name, colour.*scheme);
  };
  add("page", kPageColour);
  add("card", kCardColour);
  add("ink", kInkColour);
  add("soft", kSoftColour);
  add("rule", kRuleColour);
  for (int i = 0; i < training::kChartColours; ++i) add(fmt::format("c{}", i), kLineColours[i]);
  return css;
}

}  // namespace

std::string palette_css() {
  return fmt::format(
      ":root {{ color-scheme: light dark;{} }}\n@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n",
      variables(&PaletteColour::light), variables(&PaletteColour::dark));
}

}  // namespace eddy::app
