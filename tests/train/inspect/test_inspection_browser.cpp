// The page of an inspection in a browser: its script runs to its end for every model, on a wide screen in light
// and on a phone in dark; nothing scrolls sideways; a token that is chosen shows its loss, and where it looks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "tests/models/every_model.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "train/inspect/inspection_page.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Loads one page after another into a frame, chooses a token in it, and prints a line.
constexpr const char* kUse = R"js(<!DOCTYPE html><html><body><pre id="out"></pre><script>
const pages = [@PAGES@], width = @WIDTH@, out = document.getElementById("out");
const use = page => {
  const frame = document.createElement("iframe");
  frame.style = "width: " + width + "px; height: 900px; border: 0";
  frame.onload = () => {
    const doc = frame.contentDocument, id = name => doc.getElementById(name);
    const wide = doc.documentElement.scrollWidth, scrub = id("scrub");
    scrub.value = 42;
    scrub.dispatchEvent(new Event("input"));
    const drawn = id("tint"), box = [0, 0, drawn.width, drawn.height];
    const pixels = drawn.getContext("2d").getImageData(...box).data;
    const bars = Array.from(id("keys").querySelectorAll(".meter i"), bar => parseFloat(bar.style.width));
    const lines = id("lines").childElementCount, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    out.textContent += "@" + page + " ready " + doc.body.dataset.ready +
        (wide > width ? ", scrolls to " + wide : ", fits") + (pixels.some(p => p > 0) ? ", coloured" : ", blank") +
        (lines > 0 && lines < 60 ? ", few lines" : ", lines " + lines) +
        ", sum " + (bars.length ? Math.round(bars.reduce((a, b) => a + b)) : "none") +
        (dark ? ", dark" : ", light") + ", said [" + id("told").textContent + "]\n";
    frame.remove();
    if (pages.length > 0) use(pages.shift());
  };
  frame.src = page;
  document.body.append(frame);
};
use(pages.shift());
</script></body></html>)js";

struct MadePage {
  std::string name, loss;  // of the page, and of its token 42
  bool attends = false, is_first = false;
};

// Four significant digits, as the page's script prints them.
std::string four_digits(double value) {
  std::string text = fmt::format("{:#.4g}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

TEST_CASE(
    "inspection page: every model's page works in a browser, on a dark phone and one of each family on a wide screen") {
  const OneThread one;
  const TempFolder folder;
  const std::string text = generate_stories(3, 700);
  const auto tokenizer = make_tokenizer("char", text);
  std::vector<MadePage> made;
  std::string pages, of_families;  // of all models, and of one of each family
  std::set<std::string> families;
  for (const ModelName& name : model_registry()) {
    ModelConfig config = plain_config(name);
    config.readout = "all";
    config.n_out = 0;
    config.vocab = tokenizer->vocab_size();
    const std::unique_ptr<Model> model = model_of(config);
    std::vector<std::int32_t> tokens = tokenizer->encode(text);
    const std::int64_t segment = call_time(model->full_config());
    tokens.resize(static_cast<std::size_t>(std::max<std::int64_t>(60, 12 * segment)));
    InspectOptions options;
    options.reading.segment = segment;
    options.reading.carry_state = model->is_recurrent();
    const Inspection seen = inspect_tokens(*model, tokens, options);
    const InspectedText about{config.model, "stories", "a page of a test", std::ssize(tokens),
                              model->is_recurrent()};
    MadePage page{config.model + ".html",
                  four_digits(static_cast<double>(seen.find(TokenMeasure::loss)->values[42])),
                  !seen.attention.empty()};
    folder.write(page.name, render_inspection(about, model->full_config(), *tokenizer, tokens, seen));
    const std::string quoted = "'" + page.name + "', ";
    pages += quoted;
    page.is_first = families.insert(config.family).second;
    if (page.is_first) of_families += quoted;
    made.push_back(std::move(page));
  }
  for (const bool phone : {false, true}) {
    std::string use = kUse;
    use.replace(use.find("@PAGES@"), 7, phone ? pages : of_families);
    use.replace(use.find("@WIDTH@"), 7, phone ? "400" : "1400");
    // The schemes are numbers to the browser: 0 is dark.
    const std::string shown = shown_by_browser(
        "file://" + folder.write("use.html", use),
        phone ? "--blink-settings=preferredColorScheme=0" : "--blink-settings=preferredColorScheme=1");
    if (shown.empty()) return;
    for (const MadePage& page : made) {
      if (!phone && !page.is_first) continue;
      const std::string line = "@" + page.name + " ready yes, fits, coloured, few lines, sum ";
      const std::size_t at = shown.find(line);
      CHECK_MESSAGE(at != std::string::npos, line << " is not in\n"
                                                  << shown.substr(shown.find("<pre"), 6000));
      if (at == std::string::npos) continue;
      const std::string rest = shown.substr(at + line.size(), shown.find('\n', at) - at - line.size());
      CAPTURE(page.name);
      CAPTURE(rest);
      CHECK(contains(rest, phone ? ", dark" : ", light"));
      CHECK(contains(rest, "token 42 "));
      CHECK(contains(rest, "loss " + page.loss + " nats"));
      // Shares in whole steps and a rest: all together are all there is.
      if (page.attends) {
        CHECK(std::stoi(rest) >= 97);
        CHECK(std::stoi(rest) <= 103);
      } else {
        CHECK(rest.starts_with("none"));
      }
    }
  }
}
