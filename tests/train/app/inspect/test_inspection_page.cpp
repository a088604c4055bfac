// The page of an inspection holds its numbers, says what they are and what the model lacks, and is safe for any text.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "tests/train/app/inspect/inspect_text.h"
#include "train/app/inspect/inspection_page.h"
#include "train/app/inspect/value_meaning.h"
#include "train/files/base64.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
using nlohmann::json;

struct Shown {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> tokens;
  Inspection inspection;
  ModelConfig config;
  std::string page;

  Shown(ModelConfig given, const std::string& text, const TextOptions& options)
      : tokenizer(make_tokenizer("char", text)), tokens(tokenizer->encode(text)) {
    given.vocab = tokenizer->vocab_size();
    const auto model = tiny_model(given);
    config = model->full_config();
    inspection = inspect_tokens(*model, tokens, options);
    page = render(config);
  }
  std::string render(const ModelConfig& shown) const {
    InspectedText about{"runs/<tiny>", "my text", "tiny", std::ssize(tokens), true};
    return render_inspection(about, shown, token_text(*tokenizer), tokens, inspection);
  }
  json data() const {
    const std::string mark = "id=\"inspected\">";
    const std::size_t begin = page.find(mark) + mark.size();
    return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }
};

TextOptions segments_of(std::int64_t segment, bool carry) {
  TextOptions options;
  options.reading.segment = segment;
  options.reading.carry_state = carry;
  return options;
}

template <class Number>
std::vector<Number> numbers_of(const json& text) {
  const std::string bytes = from_base64(text.get<std::string>()).value();
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

constexpr const char* kPlainText = "a text that is read, and then </script> & <b>read</b> again\nto its end.";

}  // namespace

TEST_CASE("inspection page: losses are there as they are, other series to a step of their range") {
  const OneThread one;
  ModelConfig config = tiny_config("lstm", 0);
  config.family = "staircase";
  const Shown shown(config, kPlainText, segments_of(16, true));
  const json data = shown.data();
  CHECK(data["tokens"] == std::ssize(shown.tokens));
  CHECK(data["text"] == kPlainText);
  CHECK(data["carried"] == true);
  REQUIRE(data["series"].size() == shown.inspection.series.size());
  for (const json& series : data["series"]) {
    const TokenSeries* wanted = nullptr;
    for (const TokenSeries& candidate : shown.inspection.series) {
      const bool loss = candidate.measure == TokenMeasure::loss && series["measure"] == "loss",
                 norm = candidate.measure == TokenMeasure::norm && series["measure"] == "norm",
                 gate = candidate.measure == TokenMeasure::gate && series["measure"] == "gate";
      if ((loss || norm || gate) && candidate.path == series.at("path").get<std::string>())
        wanted = &candidate;
    }
    if (wanted == nullptr) continue;
    CAPTURE(series["label"].get<std::string>());
    if (series["measure"] == "loss") {
      const std::vector<float> losses = numbers_of<float>(series["data"]);
      for (std::size_t i = 1; i < losses.size(); ++i) CHECK(losses[i] == wanted->values[i]);
      continue;
    }
    const std::vector<std::uint16_t> steps = numbers_of<std::uint16_t>(series["data"]);
    REQUIRE(steps.size() == wanted->values.size());
    const double low = series["low"], high = series["high"];
    for (std::size_t i = 0; i < steps.size(); ++i)
      CHECK(std::abs(low + (high - low) * steps[i] / 65534 - static_cast<double>(wanted->values[i])) <=
            (high - low) / 65534);
  }
}

TEST_CASE("inspection page: it needs no network, and no text ends its script") {
  const OneThread one;
  const Shown shown(tiny_config("regular", 0), kPlainText, segments_of(16, false));
  CHECK(contains(shown.page, "runs/&lt;tiny&gt; reads my text"));
  CHECK_FALSE(contains(shown.page, "then </script>"));
  for (const char* outside : {"http://", "https://", "src=\"", "@import"})
    CHECK_MESSAGE(!contains(shown.page, outside), outside);
  CHECK(contains(shown.page, "default-src 'none'"));
}

TEST_CASE("inspection page: its script calls what stands above it") {
  const OneThread one;
  const Shown shown(tiny_config("regular", 0), kPlainText, segments_of(16, false));
  const std::size_t defined = shown.page.find("const inspectCharts = "),
                    used = shown.page.find("= inspectCharts(");
  CHECK(defined < used);
  CHECK(used != std::string::npos);
}

TEST_CASE("inspection page: links go to the line of the literal form that has the formula") {
  const OneThread one;
  const Shown shown(tiny_config("unit_forget", 0), kPlainText, segments_of(16, false));
  for (const FamilyMeanings& family : family_meanings())
    for (const ValueMeaning& meaning : family.values) {
      const std::string_view literal = family.literal;
      std::size_t begin = 0;
      for (std::int64_t line = 1; line < meaning.line; ++line) begin = literal.find('\n', begin) + 1;
      CHECK(begin < literal.size());
    }
  const std::int64_t line = meaning_of(shown.config, "layers.0.gate")->line;
  CHECK(
      contains(shown.page, "<a href=\"#L" + std::to_string(line) + "\">literal.cpp:" + std::to_string(line)));
  CHECK(contains(shown.page, "<span id=\"L" + std::to_string(line) + "\">"));
  CHECK(contains(shown.page, "(y_{i-1}, h_i) = T(h_{i-1} || x_i)"));
}

TEST_CASE(
    "inspection page: what a model lacks is said, and a model of another program has names but no meanings") {
  const OneThread one;
  const Shown plain(tiny_config("regular", 0), kPlainText, segments_of(16, false));
  for (const char* line : {"This model names no state.", "This model has no gates.",
                           "This model adds no bias of the distance to its scores.", "each is read afresh"})
    CHECK_MESSAGE(contains(plain.page, line), line);
  const Shown unit(tiny_config("unit_forget", 0), kPlainText, segments_of(16, false));
  CHECK_FALSE(contains(unit.page, "names no state"));
  CHECK(unit.data()["carried"] == false);
  ModelConfig own = unit.config;
  own.family = "own_cells";
  const std::string page = unit.render(own);
  CHECK(contains(page, "a program of its own"));
  CHECK(contains(page, "layers.0.state"));
  CHECK_FALSE(contains(page, "href=\"#L"));
}

TEST_CASE(
    "inspection page: it says which tokens fill no block, and a state that has no number is none that lacks") {
  const OneThread one;
  ModelConfig config = tiny_config("block_recurrent", 0);
  config.family = "block_recurrent";
  config.recurrent_layers = {1};
  config.window = 8;
  config.states = 4;
  const std::string text = kPlainText;
  const Shown whole(config, text.substr(0, 64), segments_of(16, true));
  CHECK_FALSE(contains(whole.page, "no block"));
  const Shown part(config, text.substr(0, 61), segments_of(16, true));
  CHECK(contains(part.page, "The last 5 tokens fill no block."));
  const Shown least(config, text.substr(0, 57), segments_of(16, true));
  CHECK(contains(least.page, "The last token fills no block."));
  const Shown nothing(config, text.substr(0, 7), segments_of(16, true));
  CHECK(contains(nothing.page, "The last 7 tokens fill no block."));
  CHECK_FALSE(contains(nothing.page, "names no state"));
}

TEST_CASE("inspection page: the memory is a map of some numbers of the state, and the others are named") {
  const OneThread one;
  ModelConfig config = tiny_config("lstm", 0);
  config.family = "staircase";
  TextOptions options = segments_of(16, true);
  options.state_rows = 5;
  options.state_bytes = 100;  // of shades: 20 columns of 5 rows
  const Shown shown(config, kPlainText, options);
  const json states = shown.data()["states"];
  CHECK(states["columns"] == 20);
  REQUIRE(states["rows"].size() == 5);
  for (const json& row : states["rows"]) CHECK(numbers_of<std::uint8_t>(row["data"]).size() == 20);
  std::int64_t shown_numbers = 0;
  for (const StateMap::Part& part : shown.inspection.states.parts) {
    shown_numbers += part.shown;
    CHECK(contains(shown.page, part.path + ": " + std::to_string(part.shown) + " of 16 numbers."));
  }
  CHECK(shown_numbers == 5);
  CHECK(contains(shown.page, "where that state saves nats"));
  const Shown plain(tiny_config("regular", 0), kPlainText, segments_of(16, false));
  CHECK_FALSE(plain.data().contains("states"));
}

TEST_CASE("inspection page: a character belongs to the token in which it begins") {
  const auto tokenizer = make_tokenizer("byte", "");
  const std::vector<std::int32_t> tokens = tokenizer->encode("a\xc3\xa9\xf0\x9f\x98\x80\xff\n\x01");
  const ShownTokens shown = shown_tokens(token_text(*tokenizer), tokens);
  CHECK(shown.text == "a\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd\n\xef\xbf\xbd");
  CHECK(shown.lengths == std::vector<std::uint16_t>{1, 1, 0, 2, 0, 0, 0, 1, 1, 1});
}
