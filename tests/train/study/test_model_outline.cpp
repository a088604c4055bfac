// The outline of a model: its parts add up to what is counted elsewhere, and its reach is what the model's windows say.
//
// The outlines of docs/outlines.md are compared with the models; with EDDY_UPDATE_DOCS set they are written instead.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/config/new_config.h"
#include "train/study/model_outline.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::test;

constexpr std::int64_t kTokens = 64;

ModelConfig small(const std::string& model) {
  ModelConfig config;
  config.model = model;
  imply_names(config, false, true);
  config.vocab = 65;
  config.dim = 32;
  config.heads = 2;
  config.layers = 2;
  config.context = kTokens;
  choose_sizes(config, {});
  return config;
}

const OutlinedModule* module_of(const ModelOutline& outline, const std::string& name) {
  const auto found = std::find_if(outline.modules.begin(), outline.modules.end(),
                                  [&](const OutlinedModule& module) { return module.name == name; });
  return found == outline.modules.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE(
    "model outline: the parts of every model add up to its work and to the parameters that a call reads") {
  for (const std::string& model : model_list()) {
    CAPTURE(model);
    const ModelConfig config = small(model);
    const ModelOutline outline = outline_model(config, kTokens);
    const double whole = forward_cost(resolved(config), kTokens).flops / 2 / kTokens;
    CHECK(std::abs(outline.multiply_adds - whole) <= 1e-9 * whole);
    std::int64_t parameters = 0;
    for (const OutlinedModule& module : outline.modules) parameters += module.parameters;
    CHECK(outline.parameters == count_parameters(resolved(config)).count());
    CHECK(parameters <= outline.parameters);
    CHECK(parameters >= outline.parameters * 9 / 10);
    REQUIRE(outline.reach.has_value());
    CHECK(contains(to_text(outline), model + ", a call of 64 tokens"));
  }
}

TEST_CASE("model outline: attention sees its window for each layer and a state what lies before the call") {
  const ModelOutline regular = outline_model(small("regular"), kTokens);
  CHECK(regular.reach == kTokens);
  CHECK_FALSE(regular.sees_before);
  CHECK(regular.state.empty());
  ModelConfig windows = small("slide");
  windows.window = 8;
  const ModelOutline slide = outline_model(windows, kTokens);
  CHECK(slide.reach == 2 * 8 + 1);  // two layers of 8 tokens before each, and the token itself
  CHECK_FALSE(slide.sees_before);
  ModelConfig recurrent = small("block_recurrent");
  recurrent.window = 8;
  const ModelOutline blocks = outline_model(recurrent, kTokens);
  CHECK(blocks.reach == kTokens);
  CHECK(blocks.sees_before);
  const OutlinedModule* const layer = module_of(blocks, "layers.1.attn");
  REQUIRE(layer != nullptr);
  CHECK_FALSE(layer->loops.empty());
  CHECK(blocks.stream_bytes == blocks.long_stream_bytes);
}

TEST_CASE("model outline: the page of outlines shows the models as they are") {
  const std::string page = EDDY_SOURCE_DIR "/docs/outlines.md",
                    mark = "    build/release/eddy models --explain ";
  const std::string before = read_bytes(page);
  std::istringstream lines(before);
  std::string after;
  int outlines = 0;
  for (std::string line; std::getline(lines, line);) {
    after += line + '\n';
    if (!line.starts_with(mark)) continue;
    ++outlines;
    std::istringstream words(line.substr(mark.size()));
    std::string name, flag, value;
    words >> name;
    NewConfig gathered;
    gathered.take_preset(name, "outlines");
    std::map<std::string, std::string> flags;
    while (words >> flag >> value) flags[flag.substr(2)] = value;
    const std::int64_t vocab = std::stoll(flags.extract("vocab").mapped());
    gathered.take_flags(flags);
    RunConfig config = gathered.completed();
    config.model.vocab = vocab;
    std::istringstream text(to_text(outline_model(config.model, segment_length(config))));
    after += '\n';
    for (std::string of_text; std::getline(text, of_text);)
      after += (of_text.empty() ? "" : "    ") + of_text + '\n';
    while (std::getline(lines, line) && line != "<!-- end -->") {
    }
    after += line + '\n';
  }
  CHECK(outlines == 4);
  if (std::getenv("EDDY_UPDATE_DOCS") != nullptr)
    write_bytes(page, after);
  else
    CHECK_MESSAGE(after == before,
                  "docs/outlines.md is not what the models are; set EDDY_UPDATE_DOCS=1 to write it");
}
