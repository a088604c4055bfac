// The outline of a model: its parts add up to what is counted elsewhere, and its reach is what the model's windows say.
//
// The outlines and the pictures of docs/families.md are compared with the models; with
// EDDY_UPDATE_DOCS set they are written instead.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/app/inspect/model_outline.h"
#include "train/config/new_config.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
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
  CHECK(blocks.stream_bytes == blocks.long_stream_bytes);
}

TEST_CASE("model outline: a state that forgets more than f64 shows is still seen") {
  ModelConfig narrow = small("lstm");
  narrow.dim = narrow.embed_dim = 8;
  narrow.layers = 1;
  narrow.context = narrow.segment = 1024;  // gradients do not pass from one segment to the next
  const ModelOutline near = outline_model(narrow, 8), far = outline_model(narrow, 1024);
  CHECK(near.sees_before);
  CHECK_FALSE(near.faint);
  CHECK(far.reach == 1024);
  CHECK(far.sees_before);
  CHECK(far.faint);
  CHECK(contains(to_text(far), "through the state those before it, the farthest by less than f64 shows"));
  // A state that every segment clears is not seen, however short the call.
  ModelConfig cleared = small("block_recurrent");
  cleared.window = 8;
  cleared.clear_state = true;
  cleared.cache = false;
  CHECK_FALSE(outline_model(cleared, kTokens).sees_before);
}

TEST_CASE("model outline: a star marks what is read in a loop, in one module and in one op too") {
  const auto loops_of = [](const char* model, const char* module) {
    const ModelOutline outline = outline_model(small(model), kTokens);
    const OutlinedModule* const found = module_of(outline, module);
    REQUIRE(found != nullptr);
    return found->loops;
  };
  using Names = std::vector<std::string>;
  CHECK(loops_of("unit_forget", "layers.0") == Names{"layers.0"});
  CHECK(loops_of("lstm", "lstm.1") == Names{"lstm.1"});
  CHECK(loops_of("block_forget", "layers.1") == Names{"layers.1.attn", "layers.1.mlp"});
  // A part that reads a module and is read by it again is no loop: in a Block-Recurrent layer the cell alone loops.
  for (const OutlinedModule& module : outline_model(small("block_recurrent"), kTokens).modules) {
    CHECK_MESSAGE(module.in_steps == module.name.starts_with("layers.1.recurrent"), module.name);
    if (module.name == "layers.1.attn") CHECK(module.parts == Names{"layers.1.attn.cross"});
  }
  for (const char* model :
       {"regular", "memorizing", "slide", "xl", "vanilla", "llama", "llama_window", "transformer_xl"})
    CHECK_MESSAGE(!contains(to_text(outline_model(small(model), kTokens)), "*:"), model);
}

namespace {

struct Area {
  double left, top, right, bottom;
  std::string text;
};

// Where the texts of a picture stand, with the width that they have at most in a common font.
std::vector<Area> texts_of(const std::string& svg) {
  static const std::regex pattern(
      R"re(<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*?(monospace)?"(?: font-size="([\d.]+)")?>([^<]*)<)re");
  std::vector<Area> areas;
  for (std::sregex_iterator match(svg.begin(), svg.end(), pattern), end; match != end; ++match) {
    const double x = std::stod((*match)[1]), y = std::stod((*match)[2]);
    const double size = (*match)[5].matched ? std::stod((*match)[5]) : 13;
    const double width =
        ((*match)[4].matched ? 0.61 : 0.58) * size * static_cast<double>((*match)[6].length());
    const std::string anchor = (*match)[3];
    const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
    areas.push_back({left, y - 0.75 * size, left + width, y + 0.22 * size, (*match)[6]});
  }
  return areas;
}

}  // namespace

TEST_CASE("model outline: the picture of every model names its parts, and none of its texts touch") {
  for (const std::string& model : model_list()) {
    const ModelOutline outline = outline_model(small(model), kTokens);
    const std::string svg = draw_outline(outline);
    CAPTURE(model);
    const std::string size = svg.substr(svg.find("viewBox=\"0 0 ") + 13);
    const double width = std::stod(size), height = std::stod(size.substr(size.find(' ')));
    CHECK(width >= 400);
    CHECK(width <= 600);
    const std::vector<Area> areas = texts_of(svg);
    for (const OutlinedModule& module : outline.modules)
      CHECK(std::count_if(areas.begin(), areas.end(), [&](const Area& area) {
              return area.text == (module.name.empty() ? "(model)" : module.name);
            }) == 1);
    for (const auto& [name, shape] : outline.state) CHECK(contains(svg, name + " " + to_string(shape)));
    for (std::size_t i = 0; i < areas.size(); ++i) {
      CHECK_MESSAGE((areas[i].left >= 0 && areas[i].right <= width && areas[i].bottom <= height),
                    areas[i].text << " is not inside");
      for (std::size_t j = 0; j < i; ++j)
        CHECK_MESSAGE((areas[i].left >= areas[j].right || areas[j].left >= areas[i].right ||
                       areas[i].top >= areas[j].bottom || areas[j].top >= areas[i].bottom),
                      areas[i].text << " touches " << areas[j].text);
    }
  }
}

namespace {

// The outline that the words behind `eddy models --explain` ask for: "lstm --model.layers 1 --vocab 65".
ModelOutline outline_for(const std::string& arguments) {
  std::istringstream words(arguments);
  std::string name, flag, value;
  words >> name;
  NewConfig gathered;
  gathered.merge_preset(name, "outlines");
  std::map<std::string, std::string> flags;
  while (words >> flag >> value) flags[flag.substr(2)] = value;
  const std::int64_t vocab = std::stoll(flags.extract("vocab").mapped());
  gathered.merge_flags(flags);
  RunConfig config = gathered.completed();
  config.model.vocab = vocab;
  return outline_model(config.model, segment_length(config));
}

// Compares a file of docs/ with what the models give, or writes it.
void expect_document(const std::string& file, const std::string& text) {
  if (std::getenv("EDDY_UPDATE_DOCS") != nullptr)
    write_bytes(EDDY_SOURCE_DIR "/" + file, text);
  else
    CHECK_MESSAGE(read_bytes(EDDY_SOURCE_DIR "/" + file) == text,
                  file << " is not what the models are; set EDDY_UPDATE_DOCS=1 to write it");
}

}  // namespace

TEST_CASE("model outline: the page of outlines shows the models as they are") {
  const std::string mark = "    build/release/eddy models --explain ";
  std::istringstream lines(read_bytes(EDDY_SOURCE_DIR "/docs/families.md"));
  std::string after;
  int outlines = 0;
  for (std::string line; std::getline(lines, line);) {
    after += line + '\n';
    if (!line.starts_with(mark)) continue;
    ++outlines;
    std::istringstream text(to_text(outline_for(line.substr(mark.size()))));
    after += '\n';
    for (std::string of_text; std::getline(text, of_text);)
      after += (of_text.empty() ? "" : "    ") + of_text + '\n';
    while (std::getline(lines, line) && line != "<!-- end -->") {
    }
    after += line + '\n';
  }
  CHECK(outlines == 4);
  expect_document("docs/families.md", after);
}

TEST_CASE("model outline: the pictures on the page of the families are drawn from the models") {
  const std::string page = read_bytes(EDDY_SOURCE_DIR "/docs/families.md");
  const std::string mark = "eddy models --explain $model ", end = " --svg docs/families/$model.svg\n";
  const std::size_t begin = page.find(mark) + mark.size();
  REQUIRE(page.find(end, begin) != std::string::npos);
  const std::string flags = page.substr(begin, page.find(end, begin) - begin);
  static const std::regex picture(R"(\]\(families/(\w+)\.svg\))");
  int pictures = 0;
  for (std::sregex_iterator match(page.begin(), page.end(), picture), last; match != last; ++match) {
    const std::string model = (*match)[1];
    CHECK_MESSAGE(contains(page.substr(0, begin), " " + model + " "), model << " is not in the command");
    expect_document("docs/families/" + model + ".svg", draw_outline(outline_for(model + " " + flags)));
    ++pictures;
  }
  CHECK(pictures >= 4);
}
