// The numbers of the page, and the sections that its script fills.
#include "train/app/inspect/inspection_page.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "tensor/base/format.h"
#include "train/app/inspect/named_segment.h"
#include "train/app/inspect/value_meaning.h"
#include "train/app/views/html_page.h"
#include "train/files/base64.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

using nlohmann::json;

constexpr std::string_view kInspectStyle =
#include "embedded/train/app/inspect/inspect.css"
    ;
constexpr std::string_view kChartsScript =
#include "embedded/train/app/inspect/inspect_charts.js"
    ;
constexpr std::string_view kInspectScript =
#include "embedded/train/app/inspect/inspect.js"
    ;

struct MeasureWords {
  TokenMeasure measure;
  const char *name, *label, *unit;  // label: before the path
  const char *title, *words;        // of the table
};

// In the order in which the page lists them.
constexpr MeasureWords kMeasures[] = {
    {TokenMeasure::loss, "loss", "loss", " nats", "loss",
     "-ln p of the token, where p is the probability that the model gave it, having read the tokens before. The "
     "first token of a text has none. Of a task p is the probability of the right answer behind the token."},
    {TokenMeasure::loss_cleared, "loss_cleared", "loss without the state", " nats", "loss without the state",
     "The same, with the recurrent state set to its initial value before every segment, or every part of one. What the "
     "state saves is the difference."},
    {TokenMeasure::change, "change", "change of ", "", "change of a state",
     "The norm of (the state behind the token or its block - the state before), divided by the norm of the state "
     "before. None where nothing came before."},
    {TokenMeasure::moved, "moved", "what moved ", "", "what moved a state",
     "How much a token moved a state that is updated once for each block: the change in each update that reads the "
     "token, times the share of attention that the state's vectors pay to it there, their mean over vectors and heads."},
    {TokenMeasure::norm, "norm", "norm of ", "", "norm of a state",
     "The square root of the sum of the squares of a state's numbers, behind the token or its block."},
    {TokenMeasure::gate, "gate", "", "", "gate",
     "The mean of a gate, or of another value, over its heads or channels."},
};

const MeasureWords& words_of(TokenMeasure measure) {
  return *std::ranges::find(kMeasures, measure, &MeasureWords::measure);
}

template <class Number>
std::string base64_of(const std::vector<Number>& numbers) {
  static_assert(std::endian::native == std::endian::little, "pages hold numbers as browsers read them");
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return to_base64(bytes);
}

json series_json(const TokenSeries& series) {
  const MeasureWords& words = words_of(series.measure);
  json data{{"measure", words.name},
            {"path", series.path},
            {"label", words.label + series.path},
            {"unit", words.unit}};
  if (!series.settling.empty()) {
    data["settling"] = json::array();
    for (const TokenRange& range : series.settling) data["settling"].push_back({range.from, range.to});
  }
  if (series.measure == TokenMeasure::loss || series.measure == TokenMeasure::loss_cleared) {
    data["data"] = base64_of(series.values);
    return data;
  }
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const float v : series.values)
    if (std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  if (!(low <= high)) low = high = 0;
  std::vector<std::uint16_t> steps;
  steps.reserve(series.values.size());
  const double range = static_cast<double>(high) - static_cast<double>(low);
  for (const float v : series.values)
    steps.push_back(
        std::isfinite(v)
            ? static_cast<std::uint16_t>(std::lround(
                  range > 0 ? (static_cast<double>(v) - static_cast<double>(low)) / range * 65534 : 0))
            : std::uint16_t{65535});
  data["low"] = low;
  data["high"] = high;
  data["data"] = base64_of(steps);
  return data;
}

json states_json(const StateMap& states) {
  json rows = json::array();
  for (const StateRow& row : states.rows)
    rows.push_back(
        {{"name", row.name()}, {"low", row.low}, {"high", row.high}, {"data", base64_of(row.shade)}});
  return {{"title", "Numbers of the state: below their middle in one colour, above it in the other"},
          {"columns", states.columns},
          {"rows", rows}};
}

// How the numbers of the map were chosen, and how many there are.
std::string states_text(const StateMap& states) {
  std::string text =
      states.by_gain
          ? "Of all numbers of the states those are shown that differ most, in standard deviations, from "
            "what they would be without the state of earlier segments, where that state saves nats; the "
            "largest difference stands first."
          : "Of all numbers of the states those are shown that vary most; nothing says here what the "
            "state saves.";
  for (const StateMap::Part& part : states.parts)
    text += fmt::format(" {}: {} of {} {}.", part.path, part.shown, grouped(part.numbers),
                        plural(part.numbers, "number"));
  return text;
}

// The names of the answers of a task that occur.
json answer_names(const Inspection& inspection, const TokenText& answer_text) {
  json names = json::object();
  for (const std::vector<std::int32_t>* ids : {&inspection.answers, &inspection.given})
    for (const std::int32_t id : *ids)
      if (id >= 0 && !names.contains(std::to_string(id))) names[std::to_string(id)] = answer_text(id);
  return names;
}

json attention_json(const AttentionView& view) {
  constexpr std::int32_t kNarrow = 65535;
  const bool wide = std::ranges::any_of(view.key, [](std::int32_t key) { return key < 0 || key > kNarrow; });
  return {{"path", view.path},
          {"keys", view.keys},
          {"passes", view.passes},
          {"heads", view.heads},
          {"kept", view.kept},
          {"from", view.from},
          {"to", view.to},
          {"wide", wide},
          {"key", wide ? base64_of(view.key)
                       : base64_of(std::vector<std::uint16_t>(view.key.begin(), view.key.end()))},
          {"share", base64_of(view.share)},
          {"rest", base64_of(view.rest)}};
}

// JSON inside a script element: no "<" may end it.
std::string script_json(const json& data) {
  std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace), safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

constexpr std::string_view kText = R"(<div class="inspect">
<noscript><p>This page draws its text and its charts by a script, which is switched off here.</p></noscript>
<div class="bar"><label>Colour by <select id="by"></select></label>
<span class="scale"><span id="low"></span><canvas id="scale"></canvas><span id="high"></span></span>
<label>Token <input type="number" id="go" min="0" max="@LAST@" value="0"/></label></div>
<div class="reader" id="reader" tabindex="0" role="region" aria-label="The text; arrow keys go from token to token">
<div id="tall"></div><div class="sheet" id="sheet"><canvas id="tint"></canvas><div class="lines" id="lines"></div></div></div>
<input class="scrub" type="range" id="scrub" min="0" max="@LAST@" value="0" aria-label="Token"/>
<p class="told" id="told" aria-live="polite"></p>
</div>
)";

// The select elements stand on pages without attention too, so that the script need not ask.
constexpr std::string_view kAttention = R"(<div class="inspect"@HIDDEN@>
<div class="bar"><label>Attention <select id="view"></select></label><label>Head <select id="head"></select></label>
<label>Pass <select id="pass"></select></label></div>
<p id="looks"></p>
<div class="rows" id="keys"></div>
<div id="bias"></div>
</div>
)";

constexpr std::string_view kMovers = R"(<div class="inspect">
<div class="bar"><label>By <select id="which"></select></label></div>
<div class="rows" id="moved"></div>
</div>
)";

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  for (std::size_t at = 0; (at = result.find(what, at)) != std::string::npos; at += by.size())
    result.replace(at, what.size(), by);
  return result;
}

bool has(const Inspection& inspection, TokenMeasure measure) {
  return std::ranges::any_of(inspection.series,
                             [&](const TokenSeries& one) { return one.measure == measure; });
}

// "0.73", or "0.41 to 0.92, mean 0.73".
std::string learned_text(const std::vector<float>& values) {
  if (values.empty()) return "none";
  if (values.size() <= 8) return fmt::format("{:.3g}", fmt::join(values, ", "));
  const auto [low, high] = std::ranges::minmax(values);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return fmt::format("{:.3g} to {:.3g}, mean {:.3g}, of {} numbers", low, high, mean, values.size());
}

// What the model or this reading of it does not have.
std::vector<std::string> lacking(const InspectedText& about, const ModelConfig& config,
                                 const Inspection& inspection) {
  std::vector<std::string> lines;
  if (!inspection.carried) {
    if (inspection.tokens <= inspection.segment)
      lines.push_back(
          "The text fits into one segment, so no state goes from segment to segment, and there is no loss "
          "without it.");
    else
      lines.push_back(
          "Nothing is carried from segment to segment: each is read afresh, as in training. So there is no "
          "loss without the state.");
  } else if (inspection.apart > 0) {
    lines.push_back(fmt::format(
        "Rows of {} tokens are read at once, longer ones than in training. Without the state they are read in parts of {}, "
        "each with a new state; a model that is sure of a wrong answer then loses more than one that guesses.",
        inspection.segment, inspection.apart));
  } else if (!about.recurrent) {
    lines.push_back("What is carried from segment to segment is a cache of the last tokens, not a state.");
  }
  if (inspection.unfilled > 0)
    lines.push_back(fmt::format(
        "The last {} no block. What the model computes once for each block has no number there: its call fills "
        "the block up with padding, and would tell of that too.",
        plural(inspection.unfilled, "token fills", grouped(inspection.unfilled) + " tokens fill")));
  const bool some_block = inspection.unfilled < inspection.tokens;
  if (some_block && !has(inspection, TokenMeasure::norm)) lines.push_back("This model names no state.");
  if (some_block && !has(inspection, TokenMeasure::gate) && inspection.learned.empty())
    lines.push_back("This model has no gates.");
  if (inspection.attention.empty()) lines.push_back("This model has no attention.");
  if (inspection.has_padded_bias)
    lines.push_back(
        "The bias of the distance is a mean over the queries of a call. It is not shown, since this text fills no call: "
        "padding fills it up.");
  else if (!inspection.attention.empty() && inspection.biases.empty())
    lines.push_back("This model adds no bias of the distance to its scores.");
  for (const std::string& path : inspection.unplaced)
    lines.push_back(fmt::format(
        "{} is not drawn: its numbers stand to the tokens in no way that this page knows.", path));
  if (meanings_of(config) == nullptr)
    lines.push_back(
        "This model is of a program of its own: the page knows what its values are called, but not what "
        "they mean.");
  return lines;
}

// What each measure is, and each value by the first path that has it.
void add_meanings(HtmlPage& page, const ModelConfig& config, const Inspection& inspection) {
  std::vector<std::string> paths;
  const auto note = [&](const std::string& path) {
    if (!path.empty() && std::ranges::count(paths, path) == 0) paths.push_back(path);
  };
  for (const TokenSeries& one : inspection.series) note(one.path);
  for (const AttentionView& one : inspection.attention) note(one.path);
  for (const BiasCurve& one : inspection.biases) note(one.path);
  for (const LearnedValue& one : inspection.learned) note(one.path);
  std::string rows;
  const auto row = [&](const std::string& name, const std::string& words, const std::string& source) {
    rows += fmt::format("<dt>{}{}</dt>\n<dd>{}</dd>\n", html_escape(name), source, html_escape(words));
  };
  for (const MeasureWords& measure : kMeasures)
    if (has(inspection, measure.measure)) row(measure.title, measure.words, "");
  const FamilyMeanings* const family = meanings_of(config);
  std::vector<const ValueMeaning*> said;
  for (const std::string& path : paths) {
    const ValueMeaning* const meaning = meaning_of(config, path);
    if (meaning == nullptr) {
      row(path, "A value that the model names; see its source.", "");
      continue;
    }
    if (std::ranges::count(said, meaning) > 0) continue;
    said.push_back(meaning);
    row(meaning->path, meaning->words, fmt::format(" <a href=\"#L{0}\">literal.cpp:{0}</a>", meaning->line));
  }
  page.append("<dl class=\"meaning text\">\n" + rows + "</dl>\n");
  if (family == nullptr) return;
  std::string lines;
  std::int64_t number = 0;
  for (std::string_view rest = family->literal; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    ++number;
    lines += fmt::format("<span id=\"L{0}\"><span class=\"n\">{0}</span>{1}</span>", number,
                         html_escape(rest.substr(0, end)));
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  page.append(fmt::format(
      "<details id=\"literal\" class=\"source\"><summary>{}: the equations, word for word</summary>\n"
      "<div class=\"text\"><pre>{}</pre></div></details>\n",
      html_escape(family->literal_name), lines));
}

}  // namespace

TokenText token_text(const Tokenizer& tokenizer) {
  return [&tokenizer](std::int32_t token) { return tokenizer.decode_one(token); };
}

ShownTokens shown_tokens(const TokenText& text_of_token, std::span<const std::int32_t> tokens) {
  std::string bytes;
  std::vector<std::size_t> begin;
  for (const std::int32_t token : tokens) {
    begin.push_back(bytes.size());
    bytes += text_of_token(token);
  }
  begin.push_back(bytes.size());
  ShownTokens shown;
  shown.lengths.resize(tokens.size());
  std::size_t token = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    while (begin[token + 1] <= at) ++token;
    const Utf8Char character = utf8_at(bytes, at);
    const char32_t code = character.bytes == 0 ? U'\ufffd' : character.code_point;
    const bool control =
        (code < 0x20 && code != '\n' && code != '\t' && code != '\r') || (code >= 0x7f && code < 0xa0);
    append_utf8(shown.text, control ? U'\ufffd' : code);
    shown.lengths[token] = static_cast<std::uint16_t>(shown.lengths[token] + (code >= 0x10000 ? 2 : 1));
    at += static_cast<std::size_t>(std::max(character.bytes, 1));
  }
  return shown;
}

std::string render_inspection(const InspectedText& about, const ModelConfig& config,
                              const TokenText& text_of_token, std::span<const std::int32_t> tokens,
                              const Inspection& inspection) {
  HtmlPage page(fmt::format("{} reads {}", about.run, about.text), about.about);
  page.extra_style(kInspectStyle);
  page.extra_script(kChartsScript);  // which the other one calls at once
  page.extra_script(kInspectScript);
  const bool part = about.tokens_in_all > inspection.tokens, both = std::isfinite(inspection.loss_cleared);
  const bool task = !inspection.answers.empty();
  const char* const unit = task ? "nats per answer" : "nats per token";
  std::vector<StatTile> tiles{{"Tokens", grouped(inspection.tokens),
                               task   ? "of fresh streams"
                               : part ? fmt::format("the first of {}", grouped(about.tokens_in_all))
                                      : "the whole text"},
                              {"Loss", fmt::format("{:.4f}", inspection.loss), unit}};
  if (task) {
    const auto [right, answers] = right_answers(inspection);
    tiles.push_back({"Right",
                     fmt::format("{:.4g} %", 100.0 * static_cast<double>(right) /
                                                 static_cast<double>(std::max<std::int64_t>(1, answers))),
                     fmt::format("of {} answers", grouped(answers))});
  }
  if (both) {
    tiles.push_back({"Without the state", fmt::format("{:.4f}", inspection.loss_cleared), unit});
    tiles.push_back(
        {"The state saves", fmt::format("{:.4f}", inspection.loss_cleared - inspection.loss), unit});
  }
  page.tiles(tiles);
  page.heading(task ? "The streams" : "The text");
  if (task)
    page.paragraph(
        "A bar above a token marks an answer of the model behind it: a thin one is right, a thick one is wrong.");
  const std::string last = fmt::format("{}", inspection.tokens - 1);
  page.append(replaced(kText, "@LAST@", last));

  if (!inspection.states.rows.empty()) {
    page.heading("The memory");
    page.paragraph(states_text(inspection.states));
    page.append("<div class=\"inspect\" id=\"states\"></div>\n");
  }

  const bool attends = !inspection.attention.empty();
  if (attends) {
    const AttentionView& first = inspection.attention.front();
    page.heading("Where the chosen token looks");
    std::int64_t kept = 0;
    for (const AttentionView& view : inspection.attention) kept = std::max(kept, view.kept);
    page.paragraph(fmt::format(
        "Of each token and head the {} largest probabilities are kept, in steps of 1/255; what is less than 1/510 "
        "counts as nothing, and the rest is given as a sum. Kept are the tokens {} to {} of {}.",
        kept, grouped(first.from), grouped(first.to - 1), grouped(inspection.tokens)));
  }
  page.append(replaced(kAttention, "@HIDDEN@", attends ? "" : " hidden=\"hidden\""));

  page.heading(task ? "Along the streams" : "Along the text");
  page.append("<div class=\"inspect\" id=\"charts\"></div>\n");
  if (!inspection.learned.empty()) {
    Table learned{{"gate", "value"}};
    for (const LearnedValue& one : inspection.learned)
      learned.rows.push_back({one.path, learned_text(one.values)});
    page.paragraph("Learned numbers that no token changes:");
    page.table(learned);
  }
  if (has(inspection, TokenMeasure::change) || both) {
    page.heading("Which tokens did most");
    page.append(std::string(kMovers));
  }
  const std::vector<std::string> lacks = lacking(about, config, inspection);
  page.heading("What these numbers are");
  for (const std::string& line : lacks) page.paragraph(line);
  add_meanings(page, config, inspection);

  const ShownTokens shown = shown_tokens(text_of_token, tokens);
  json data{{"tokens", inspection.tokens},         {"segment", inspection.segment},
            {"carried", inspection.carried},       {"text", shown.text},
            {"lengths", base64_of(shown.lengths)}, {"series", json::array()},
            {"attention", json::array()},          {"bias", json::array()}};
  for (const MeasureWords& measure : kMeasures)
    for (const TokenSeries& one : inspection.series)
      if (one.measure == measure.measure) data["series"].push_back(series_json(one));
  if (!inspection.states.rows.empty()) data["states"] = states_json(inspection.states);
  if (task) {
    data["answers"] = base64_of(inspection.answers);
    data["given"] = base64_of(inspection.given);
    data["names"] = answer_names(inspection, about.answer_text);
  }
  for (const AttentionView& view : inspection.attention) data["attention"].push_back(attention_json(view));
  for (const BiasCurve& curve : inspection.biases)
    data["bias"].push_back({{"path", curve.path}, {"heads", curve.heads}, {"data", base64_of(curve.values)}});
  page.append("<script type=\"application/json\" id=\"inspected\">" + script_json(data) + "</script>\n");
  return page.html();
}

}  // namespace eddy::app
