// The picture of the tour's ladder, from plain loops to the full stack, is drawn from what was measured. With
// EDDY_UPDATE_DOCS set it is written.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/views/palette.h"
#include "train/app/views/svg_picture.h"
#include "train/files/text_file.h"

namespace {

using namespace eddy;
using namespace eddy::app;
using nlohmann::json;

struct Rung {
  std::string name;
  std::string ms[2] = {};      // of a step, at widths 32 and 256
  std::string faster[2] = {};  // than the rung above; empty for the first

  double number(std::size_t panel) const { return std::stod(ms[panel]); }
};

std::vector<Rung> rungs_of(const json& measured) {
  std::vector<Rung> rungs;
  for (const json& row : measured.at("rows")) {
    const auto cell = [&](std::size_t i) { return row.at(i).get<std::string>(); };
    if (cell(1).empty()) continue;  // the sum of all
    rungs.push_back({cell(0).substr(0, cell(0).find(':')), {cell(1), cell(3)}, {cell(2), cell(4)}});
  }
  return rungs;
}

// A bar for the milliseconds of each rung, on a logarithmic scale, with its factor behind it.
std::string ladder_picture(const json& measured) {
  using At = SvgPicture::Anchor;
  const std::vector<Rung> rungs = rungs_of(measured);
  const json& all = measured.at("rows").back();
  constexpr double kTop = 52, kRow = 28, kNames = 82, kPanel = 316, kLongest = 190;
  const int height = static_cast<int>(kTop + kRow * static_cast<double>(rungs.size())) + 34;
  const auto factor = [&](std::size_t column) { return all.at(column).get<std::string>(); };
  SvgPicture picture(
      720, height,
      fmt::format("From plain loops to fast, milliseconds of a training step by rungs: {} times faster at "
                  "width 32, {} times at width 256",
                  factor(2), factor(4)));
  for (std::size_t panel = 0; panel < 2; ++panel) {
    double least = rungs.front().number(panel), most = least;
    for (const Rung& rung : rungs) {
      least = std::min(least, rung.number(panel));
      most = std::max(most, rung.number(panel));
    }
    const double left = kNames + kPanel * static_cast<double>(panel);
    picture.text({left, 20}, At::start, panel == 0 ? "width 32" : "width 256", kInkColour.light,
                 SvgPicture::Font::bold);
    picture.text({left, 38}, At::start,
                 "ms a step (bars by their logarithm), and the factor over the rung above", kSoftColour.light,
                 SvgPicture::Font::plain, 11);
    for (std::size_t i = 0; i < rungs.size(); ++i) {
      const Rung& rung = rungs[i];
      const double y = kTop + kRow * static_cast<double>(i);
      // The shortest bar is a tenth of the longest.
      const double share = 0.1 + 0.9 * std::log(rung.number(panel) / least) / std::log(most / least);
      picture.bar({left, y}, {left + share * kLongest, y + 18}, picture_colour(static_cast<int>(panel)));
      std::string said = rung.ms[panel];
      if (!rung.faster[panel].empty()) said += fmt::format("   \u00d7 {}", rung.faster[panel]);
      picture.text({left + share * kLongest + 6, y + 14}, At::start, said);
      if (panel == 0) picture.text({kNames - 8, y + 14}, At::end, rung.name);
    }
    picture.text({left, static_cast<double>(height) - 10}, At::start,
                 fmt::format("all rungs: \u00d7 {}", factor(panel == 0 ? 2 : 4)), kInkColour.light,
                 SvgPicture::Font::bold);
  }
  return picture.svg();
}

std::filesystem::path in_docs(const char* path) {
  return std::filesystem::path(EDDY_SOURCE_DIR) / "docs" / path;
}

}  // namespace

TEST_CASE("picture: the ladder of the tour shows every rung that was measured, with its factor") {
  const json measured =
      json::parse(training::read_text_file(in_docs("measured/plain-to-fast.json").string()));
  const std::string drawn = ladder_picture(measured);
  const std::string file = in_docs("tour/plain-to-fast.svg").string();
  if (std::getenv("EDDY_UPDATE_DOCS") != nullptr) std::ofstream(file) << drawn;
  CHECK_MESSAGE(
      training::read_text_file(file) == drawn,
      file << " is not what docs/measured/plain-to-fast.json says; set EDDY_UPDATE_DOCS=1 to write it");
  CHECK(rungs_of(measured).size() == 8);
  for (const Rung& rung : rungs_of(measured)) {
    CHECK(drawn.find(">" + rung.name + "<") != std::string::npos);
    for (const std::string& faster : rung.faster)
      CHECK(drawn.find(faster.empty() ? "<svg" : "\u00d7 " + faster + "<") != std::string::npos);
  }
}
