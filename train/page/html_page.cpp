// The frame of the page: its style sheet, and a short script that shows the values under the pointer. The
// content security policy in the head forbids the page to load anything.
#include "train/page/html_page.h"

#include <fmt/format.h>

#include <iterator>

#include "tensor/base/format.h"
#include "train/files/base64.h"
#include "train/page/human_text.h"

namespace eddy {
namespace {

// The chart colours differ in lightness as well as in hue, for colour-blind readers and for print.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b1f24; --soft: #5c6670; --rule: #e1e5ea;
  --c0: #1f6feb; --c1: #d9580d; --c2: #1a7f4b; --c3: #8250df; --c4: #c2255c; --c5: #0b7285; }
@media (prefers-color-scheme: dark) {
  :root { --page: #101418; --card: #181d23; --ink: #e4e8ec; --soft: #9aa5b1; --rule: #2c343d;
    --c0: #6cabff; --c1: #ff9f54; --c2: #5bd690; --c3: #bfa0ff; --c4: #ff8fb0; --c5: #5fd3e3; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
.subtitle { margin: 4px 0 0; color: var(--soft); overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 36px 0 12px; }
p { margin: 8px 0; overflow-wrap: anywhere; }
main > .tiles, main > .chart, main > .charts, main > .texts, main > .scroll, main > .text { margin: 12px 0; }
.subtitle + * { margin-top: 20px !important; }
.tiles { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 12px; }
.tile, .chart, .text, table, .scroll { background: var(--card); border-radius: 10px; }
.tile, .chart, .text, .scroll { border: 1px solid var(--rule); }
.tile { padding: 12px 16px; }
.tile .name, .tile .remark { color: var(--soft); font-size: .85rem; }
.tile .value { font-size: 1.5rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.charts, .texts { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 12px; }
.texts.single { grid-template-columns: minmax(0, 1fr); }
.chart { margin: 0; padding: 14px 16px 10px; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; color: var(--soft); font-size: .85rem; }
.key::before { content: ""; display: inline-block; width: 18px; height: 3px; border-radius: 2px; margin-right: 7px;
  vertical-align: middle; background: var(--c); }
.key.points::before { width: 8px; height: 8px; border-radius: 4px; }
.key.faint::before { opacity: .4; }
.plot { display: block; width: 100%; height: auto; margin-top: 8px; touch-action: pan-y; }
.plot text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.plot .end { text-anchor: end; } .plot .middle { text-anchor: middle; }
.plot .axis line { stroke: var(--rule); }
.plot path { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.plot path.faint { stroke-width: 1; opacity: .35; }
.plot path.dots { stroke-width: 6; }
.plot .cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); }
.c3 { --c: var(--c3); } .c4 { --c: var(--c4); } .c5 { --c: var(--c5); }
.narrow { display: none; }
.readout { min-height: 1.4em; color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums; }
.note { color: var(--soft); font-size: .85rem; margin: 2px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: 6px 14px; border-top: 1px solid var(--rule);
  overflow-wrap: anywhere; }
tr:first-child > * { border-top: 0; }
th { color: var(--soft); font-weight: 600; overflow-wrap: break-word; }
th:first-child, td:first-child { width: 28%; min-width: 9em; }
th:first-child:nth-last-child(n+5), td:first-child:nth-last-child(n+5) { width: auto; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
.text { padding: 10px 16px 12px; }
.text .label { color: var(--soft); font-size: .85rem; }
pre { margin: 4px 0 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .86rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.pictures { display: flex; flex-wrap: wrap; gap: 12px; margin: 12px 0; }
.picture { margin: 0; width: 96px; font-size: .78rem; line-height: 1.25; color: var(--soft); }
.picture img { display: block; width: 96px; height: 96px; image-rendering: pixelated; border-radius: 4px;
  margin-bottom: 4px; }
.picture.bad figcaption { color: var(--c1); } .picture figcaption { font-weight: 400; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--soft); margin-bottom: 8px; }
@media (max-width: 760px) {
  main { padding: 16px 12px 40px; }
  .charts, .texts { grid-template-columns: minmax(0, 1fr); }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
  .tile { padding: 10px 12px; } .tile .value { font-size: 1.25rem; }
  .chart { padding: 12px 10px 6px; }
  .broad { display: none; } .narrow { display: block; max-width: 560px; }
}
)css";

// Shows the values under the pointer, read back from the paths of the drawing (chart.cpp).
constexpr std::string_view kScript = R"js(
document.querySelectorAll("svg.plot").forEach(function (svg) {
  const [width, left, top, w, h] = JSON.parse(svg.dataset.frame);
  const xAxis = JSON.parse(svg.dataset.x), yAxis = JSON.parse(svg.dataset.y);
  const value = ([low, high, log], f) => log ? low * Math.pow(high / low, f) : low + f * (high - low);
  const show = v => String(Number(v.toPrecision(4)));
  const cursor = svg.querySelector(".cursor"), out = svg.closest("figure").querySelector(".readout");
  let series = null;
  svg.addEventListener("pointermove", function (event) {
    series = series || Array.from(svg.querySelectorAll("path[data-name]"), path => ({
      name: path.dataset.name,
      points: Array.from(path.getAttribute("d").matchAll(/[ML]([-\d.]+) ([-\d.]+)/g), m => [+m[1], +m[2]])
    }));
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * width / box.width;
    const near = new Map();
    for (const s of series) {
      for (const p of s.points) {
        const old = near.get(s.name), d = Math.abs(p[0] - at);
        if (d <= 8 && (!old || d < Math.abs(old[0] - at))) near.set(s.name, p);
      }
    }
    if (near.size === 0) return;
    const best = Array.from(near.values()).reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    const x = value(xAxis, (best[0] - left) / w);
    const parts = [Math.abs(x) >= 100 ? String(Math.round(x)) : show(x)];
    for (const [name, p] of near) {
      const beyond = p[1] < top ? "over " : p[1] > top + h ? "under " : "";
      parts.push(name + " " + beyond + show(value(yAxis, Math.min(1, Math.max(0, 1 - (p[1] - top) / h)))));
    }
    out.textContent = svg.dataset.xTitle + " " + parts.join("  \u00b7  ");
    cursor.setAttribute("x1", best[0]);
    cursor.setAttribute("x2", best[0]);
  });
  svg.addEventListener("pointerleave", function () {
    out.textContent = "";
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
  });
});
)js";

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

void HtmlPage::tiles(const std::vector<Tile>& tiles) {
  if (tiles.empty()) return;
  body_ += "<div class=\"tiles\">\n";
  for (const Tile& tile : tiles) {
    body_ += fmt::format("<div class=\"tile\"><div class=\"name\">{}</div><div class=\"value\">{}</div>",
                         html_escape(tile.name), html_escape(tile.value));
    if (!tile.remark.empty())
      body_ += fmt::format("<div class=\"remark\">{}</div>", html_escape(tile.remark));
    body_ += "</div>\n";
  }
  body_ += "</div>\n";
}

void HtmlPage::table(const std::vector<std::string>& header,
                     const std::vector<std::vector<std::string>>& rows) {
  const auto row = [&](const std::vector<std::string>& cells, const char* tag) {
    body_ += "<tr>";
    for (const std::string& cell : cells) {
      const bool number = !cell.empty() && cell.find_first_not_of("0123456789 .+-e%") == std::string::npos;
      body_ += fmt::format("<{0}{1}>{2}</{0}>", tag, number ? " class=\"number\"" : "", html_escape(cell));
    }
    body_ += "</tr>\n";
  };
  body_ += "<div class=\"scroll\"><table><tbody>\n";
  if (!header.empty()) row(header, "th");
  for (const auto& cells : rows) row(cells, "td");
  body_ += "</tbody></table></div>\n";
}

void HtmlPage::chart(const Chart& chart) {
  has_chart_ = true;
  body_ += chart_figure(chart, true);
}

void HtmlPage::charts(const std::vector<Chart>& charts) {
  if (charts.empty()) return;
  has_chart_ = true;
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

std::string HtmlPage::html() const {
  std::string page;
  const auto out = std::back_inserter(page);
  page +=
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\"/>\n";
  fmt::format_to(out, "<title>{}</title>\n<style>{}</style>\n</head>\n", title_, kStyle);
  fmt::format_to(out, "<body>\n<main>\n{}</main>\n", body_);
  if (has_chart_) fmt::format_to(out, "<script>{}</script>\n", kScript);
  page += "</body>\n</html>\n";
  return page;
}

}  // namespace eddy
