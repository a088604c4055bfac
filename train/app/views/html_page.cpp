// The frame of the page, with its style sheet and a short script. The content security policy in the head
// forbids the page to load anything.
#include "train/app/views/html_page.h"

#include <fmt/format.h>

#include <iterator>

#include "tensor/base/format.h"
#include "train/app/views/palette.h"
#include "train/files/base64.h"
#include "train/files/output_file.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// Behind the palette. The lines of a chart differ in their dashes and their lightness as well as in hue, for
// colour-blind readers and print.
constexpr std::string_view kStyle =
#include "embedded/train/app/views/page.css"
    ;

// Shows the values under the pointer, read back from the paths of the drawing (chart.cpp); moves sliders; loads a page
// again that is written again.
constexpr std::string_view kScript =
#include "embedded/train/app/views/page.js"
    ;

std::string text_block(const LabelledText& item) {
  // A browser drops a line feed right after the tag, so one is added.
  return fmt::format("<div class=\"text\"><div class=\"label\">{}</div><pre>\n{}</pre></div>\n",
                     html_escape(item.label), html_escape(item.text));
}

// Returns the picture as a Windows bitmap of 24 bits per pixel, the simplest format that every browser reads.
// Rows go from bottom to top, each padded to a multiple of 4 bytes.
std::string bitmap(const Picture& picture) {
  const auto width = static_cast<std::uint32_t>(picture.width),
             height = static_cast<std::uint32_t>(picture.height);
  const std::uint32_t row_bytes = (3 * width + 3) / 4 * 4, header = 54;
  std::string bytes = "BM";
  constexpr std::uint32_t kPlanesAndBits = 1 | 24 << 16;  // two fields of 16 bits
  for (const std::uint32_t field :
       {header + row_bytes * height, 0u, header, 40u, width, height, kPlanesAndBits, 0u, 0u, 0u, 0u, 0u, 0u})
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>((field >> (8 * i)) & 255);
  for (std::uint32_t y = height; y-- > 0;) {
    for (std::uint32_t x = 0; x < width; ++x) bytes.append(3, static_cast<char>(picture.grey[y * width + x]));
    bytes.append(row_bytes - 3 * width, '\0');
  }
  return bytes;
}

}  // namespace

HtmlPage::HtmlPage(std::string_view title, std::string_view subtitle) : title_(html_escape(title)) {
  body_ = fmt::format("<h1>{}</h1>\n", title_);
  if (!subtitle.empty()) body_ += fmt::format("<p class=\"subtitle\">{}</p>\n", html_escape(subtitle));
}

void HtmlPage::heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", html_escape(text));
}

void HtmlPage::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", html_escape(text));
}

void HtmlPage::tiles(const std::vector<StatTile>& tiles) {
  if (tiles.empty()) return;
  body_ += "<div class=\"tiles\">\n";
  for (const StatTile& tile : tiles) {
    body_ += fmt::format("<div class=\"tile\"><div class=\"name\">{}</div><div class=\"value\">{}</div>",
                         html_escape(tile.name), html_escape(tile.value));
    if (!tile.remark.empty())
      body_ += fmt::format("<div class=\"remark\">{}</div>", html_escape(tile.remark));
    body_ += "</div>\n";
  }
  body_ += "</div>\n";
}

void HtmlPage::table(const Table& table) {
  body_ += to_html(table);
}

void HtmlPage::chart(const Chart& chart) {
  body_ += chart_figure(chart, true);
}

void HtmlPage::charts(const std::vector<Chart>& charts) {
  if (charts.empty()) return;
  body_ += "<div class=\"charts\">\n";
  for (const Chart& chart : charts) body_ += chart_figure(chart, false);
  body_ += "</div>\n";
}

void HtmlPage::pictures(const std::vector<Picture>& pictures) {
  if (pictures.empty()) return;
  std::string section = "<div class=\"pictures\">\n";
  for (const Picture& picture : pictures) {
    if (picture.width < 1 || picture.height < 1 ||
        picture.grey.size() !=
            static_cast<std::size_t>(picture.width) * static_cast<std::size_t>(picture.height))
      fail<ValueError>("page: a picture of {} by {} has {} bytes (width * height)", picture.width,
                       picture.height, picture.grey.size());
    section += fmt::format(
        "<figure class=\"picture{}\"><img alt=\"{}\" "
        "src=\"data:image/bmp;base64,{}\"/><figcaption>{}</figcaption></figure>\n",
        picture.good ? "" : " bad", html_escape(picture.caption), to_base64(bitmap(picture)),
        html_escape(picture.caption));
  }
  body_ += section + "</div>\n";
}

void HtmlPage::preformatted(std::string_view text) {
  body_ += fmt::format("<div class=\"text\"><pre>\n{}</pre></div>\n", html_escape(text));
}

void HtmlPage::texts(const std::vector<LabelledText>& texts) {
  if (texts.empty()) return;
  body_ += texts.size() == 1 ? "<div class=\"texts single\">\n" : "<div class=\"texts\">\n";
  for (const LabelledText& item : texts) body_ += text_block(item);
  body_ += "</div>\n";
}

void HtmlPage::folded(std::string_view summary, const std::function<void()>& add) {
  body_ += fmt::format("<details><summary>{}</summary>\n", html_escape(summary));
  add();
  body_ += "</details>\n";
}

void HtmlPage::status(const PageStatus& status) {
  every_s_ = status.every_s;
  body_ += fmt::format("<div class=\"status{}\"", every_s_ > 0 ? " live" : "");
  if (every_s_ > 0)
    body_ += fmt::format(" data-written=\"{:.0f}\" data-every=\"{:.0f}\"", status.written_s, every_s_);
  body_ += fmt::format("><p><strong>{}</strong> {}<span class=\"age\"></span></p>\n",
                       html_escape(status.word), html_escape(status.text));
  for (const std::string& command : status.commands) {
    const std::size_t colon = command.find(": ");
    body_ += fmt::format("<p>{}: <code>{}</code></p>\n", html_escape(command.substr(0, colon)),
                         words_html(colon == std::string::npos ? "" : command.substr(colon + 2)));
  }
  body_ += "</div>\n";
}

void HtmlPage::slider(std::string_view label, const std::vector<LabelledText>& texts) {
  if (texts.size() < 2) return this->texts(texts);
  body_ += fmt::format(
      "<div class=\"slider\"><input type=\"range\" min=\"0\" max=\"{0}\" value=\"{0}\" aria-label=\"{1}\"/>\n",
      texts.size() - 1, html_escape(label));
  for (const LabelledText& item : texts) body_ += text_block(item);
  body_ += "</div>\n";
}

// Buttons of one group, then the sections. The style sheet shows the section of the button that is pressed, so that it
// needs no script.
void HtmlPage::choice(std::string_view label, const std::vector<Choice>& choices) {
  constexpr std::size_t kMost = 4;  // as many as the style sheet knows
  if (choices.size() > kMost) fail<ValueError>("page: {} choices (at most {})", choices.size(), kMost);
  if (choices.empty()) return;
  if (choices.size() == 1) return choices.front().add();
  const int group = ++choices_;
  body_ += fmt::format("<div class=\"choice\"><span>{}</span>\n", html_escape(label));
  for (std::size_t i = 0; i < choices.size(); ++i)
    body_ += fmt::format(
        "<input type=\"radio\" name=\"choice-{0}\" id=\"choice-{0}-{1}\"{2}/><label for=\"choice-{0}-{1}\">{3}</label>\n",
        group, i, i == 0 ? " checked=\"checked\"" : "", html_escape(choices[i].name));
  for (const Choice& one : choices) {
    body_ += "<div class=\"chosen\">\n";
    one.add();
    body_ += "</div>\n";
  }
  body_ += "</div>\n";
}

std::string HtmlPage::html() const {
  std::string page;
  const auto out = std::back_inserter(page);
  page += kPageHead;
  // A page that is written again asks its server whether it is there before it loads itself.
  fmt::format_to(
      out,
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:{}\"/>\n",
      every_s_ > 0 ? "; connect-src 'self'" : "");
  if (every_s_ > 0)
    fmt::format_to(out, "<noscript><meta http-equiv=\"refresh\" content=\"{:.0f}\"/></noscript>\n", every_s_);
  fmt::format_to(out, "<title>{}</title>\n<style>\n{}{}{}</style>\n</head>\n", title_, palette_css(), kStyle,
                 extra_style_);
  fmt::format_to(out, "<body>\n<main>\n{}</main>\n", body_);
  const auto has = [&](const char* part) { return body_.find(part) != std::string::npos; };
  if (every_s_ > 0 || has("<svg class=\"plot\"") || has("<div class=\"slider\""))
    fmt::format_to(out, "<script>\n{}</script>\n", kScript);
  if (!extra_script_.empty()) fmt::format_to(out, "<script>\n{}</script>\n", extra_script_);
  page += "</body>\n</html>\n";
  return page;
}

}  // namespace eddy::app
