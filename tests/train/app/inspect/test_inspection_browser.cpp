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
#include "tests/train/app/inspect/inspect_text.h"
#include "train/app/inspect/inspection_page.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
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

// Moves about in a page in a frame, and prints what stands where. Nothing waits for a frame to be drawn: a browser
// without a screen may draw none.
constexpr const char* kMove = R"js(<!DOCTYPE html><html><body><pre id="out"></pre>
<iframe id="frame" style="width: 1200px; height: 900px; border: 0" src="@PAGE@"></iframe><script>
const out = document.getElementById("out"), frame = document.getElementById("frame");
frame.onload = async () => {
  const doc = frame.contentDocument, id = name => doc.getElementById(name), reader = id("reader");
  const choose = token => { id("scrub").value = token; id("scrub").dispatchEvent(new Event("input")); };
  // Of the lines that are wholly in the reader's view.
  const inSight = () => {
    const box = reader.getBoundingClientRect();
    return Array.from(id("lines").children).filter(line => {
      const place = line.getBoundingClientRect();
      return place.top >= box.top && place.bottom <= box.bottom;
    });
  };
  const words = () => inSight().map(line => line.textContent).join("");
  const edge = () => {
    const place = inSight()[0].getBoundingClientRect();
    reader.dispatchEvent(new PointerEvent("pointermove", { clientX: place.left + 3, clientY: place.top + 12 }));
    return Number(/token ([0-9\u202f]+)/.exec(id("told").textContent)[1].replace(/\u202f/g, ""));
  };
  const say = (what, value) => { out.textContent += what + " [" + value + "]\n"; };
  const scroll = y => { reader.scrollTop = y; reader.dispatchEvent(new Event("scroll")); };
  const resize = async width => {
    frame.style.width = width + "px";
    frame.contentWindow.dispatchEvent(new Event("resize"));
    await new Promise(done => setTimeout(done, 200));
  };
  frame.contentWindow.requestAnimationFrame = draw => draw();
  @MOVES@
  out.textContent += "moved\n";
};
</script></body></html>)js";

// What a browser prints of a page when it is moved about in; empty where there is no browser.
std::string moved_in_browser(const TempFolder& folder, const std::string& page, const std::string& moves) {
  folder.write("page.html", page);
  std::string use = kMove;
  use.replace(use.find("@PAGE@"), 6, "page.html");
  use.replace(use.find("@MOVES@"), 7, moves);
  const std::string shown = shown_by_browser("file://" + folder.write("move.html", use));
  if (shown.empty()) return shown;
  const std::size_t begin = shown.find("<pre id=\"out\">");
  const std::string said = shown.substr(begin, shown.find("</pre>", begin) - begin);
  CHECK_MESSAGE(contains(said, "moved\n"), said);
  return said;
}

// The value that a page said of something.
std::string said_of(const std::string& said, const std::string& what) {
  const std::size_t at = said.find(what + " [");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + what.size() + 2;
  return said.substr(begin, said.find("]\n", begin) - begin);
}

// The page of a text whose tokens have all the same loss.
std::string plain_page(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  Inspection seen;
  seen.tokens = std::ssize(tokens);
  seen.segment = seen.tokens;
  seen.series.push_back({TokenMeasure::loss, "", std::vector<float>(tokens.size(), 1.0f)});
  const ModelConfig config = plain_config({"recurrent_transformer", "regular"});
  return render_inspection({"run", "text", "a page of a test", seen.tokens, false}, config,
                           token_text(tokenizer), tokens, seen);
}

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
    TextOptions options;
    options.reading.segment = segment;
    options.reading.carry_state = model->is_recurrent();
    const Inspection seen = inspect_tokens(*model, tokens, options);
    const InspectedText about{config.model, "stories", "a page of a test", std::ssize(tokens),
                              model->is_recurrent()};
    MadePage page{config.model + ".html",
                  four_digits(static_cast<double>(seen.find(TokenMeasure::loss)->values[42])),
                  !seen.attention.empty()};
    folder.write(page.name,
                 render_inspection(about, model->full_config(), token_text(*tokenizer), tokens, seen));
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

TEST_CASE("inspection page: what is in sight stays in sight where the window gets another width") {
  std::string text;
  for (int i = 1000; i < 4000; ++i) text += "w" + std::to_string(i) + " ";
  const TempFolder folder;
  // Token 9000 is in w2500, six characters a word.
  const std::string said = moved_in_browser(folder, plain_page(*make_tokenizer("char", text), text),
                                            R"js(choose(9000);
  say("first", words().includes("w2500"));
  for (const width of [400, 1400, 500, 1200]) { await resize(width); say("chosen " + width, words().includes("w2500")); }
  scroll(reader.scrollTop + 1000);
  const word = /w\d{4}/.exec(words())[0];
  for (const width of [400, 1400, 500]) { await resize(width); say("unchosen " + width, words().includes(word)); }
  await resize(1200); say("back", /w\d{4}/.exec(words())[0] === word);)js");
  if (said.empty()) return;
  for (const char* what : {"first", "chosen 400", "chosen 1400", "chosen 500", "chosen 1200", "unchosen 400",
                           "unchosen 1400", "unchosen 500", "back"})
    CHECK_MESSAGE(said_of(said, what) == "true", std::string(what));
}

TEST_CASE(
    "inspection page: the pointer chooses the token below it also in letters that stand from right to left") {
  const std::string text =
      "\u05e9\u05dc\u05d5\u05dd \u05dc\u05db\u05dc (12) "
      "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 abc\n";
  const TempFolder folder;
  const std::string said =
      moved_in_browser(folder, plain_page(*make_tokenizer("char", text), text + text),
                       R"js(const letters = inSight()[0].firstChild, range = doc.createRange();
  let missed = "", before = 0;
  for (let i = 0; i < letters.data.length; i++) {
    range.setStart(letters, i);
    range.setEnd(letters, i + 1);
    const place = range.getBoundingClientRect(), x = (place.left + place.right) / 2;
    reader.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: place.top + 8 }));
    if (Number(/token ([0-9]+)/.exec(id("told").textContent)[1]) !== i || x < before) missed += i + " ";
    before = x;
  }
  say("letters", letters.data.length);
  say("missed", missed);)js");
  if (said.empty()) return;
  CHECK(said_of(said, "letters") == "31");
  CHECK(said_of(said, "missed") == "");
}

TEST_CASE("inspection page: a text of more lines than a browser has pixels is reached from end to end") {
  constexpr int kLines = 700'000;  // of 24 pixels: 16.8 million
  const std::string text(kLines, '\n');
  const TempFolder folder;
  const std::string said = moved_in_browser(folder, plain_page(*make_tokenizer("char", text), text),
                                            R"js(choose(699999);
  say("tall", id("tall").clientHeight < 17e6);
  say("last", inSight().length > 8 && edge());
  choose(0); say("first", edge());
  choose(350000); const middle = edge(); say("middle", middle);
  scroll(reader.scrollTop + 240); say("ten lines", edge() - middle);
  scroll(reader.scrollHeight / 4); say("quarter", edge());
  scroll(reader.scrollHeight); say("end", edge());
  for (let i = 0; i < 3; i++) scroll(reader.scrollTop - 240);
  say("back", edge());
  for (let i = 0; i < 12; i++) scroll(reader.scrollTop + 100);
  say("end again", edge());)js");
  if (said.empty()) return;
  CHECK(said_of(said, "tall") == "true");
  const auto token = [&](const char* what) { return std::stoi("0" + said_of(said, what)); };
  CHECK(token("last") > kLines - 20);
  CHECK(said_of(said, "first") == "0");
  CHECK(std::abs(token("middle") - 350'000) < 20);
  CHECK(said_of(said, "ten lines") == "10");
  CHECK(std::abs(token("quarter") - kLines / 4) < 100);
  CHECK(token("end") == token("last"));
  CHECK(token("back") == token("end") - 30);
  CHECK(token("end again") == token("end"));
}
