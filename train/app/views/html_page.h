// A page of HTML, built section by section: one self-contained file with its style sheet inside, readable on
// a phone, in light and dark, without a network. Every text is escaped, and the result is also well-formed
// XML.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/app/views/chart.h"
#include "train/app/views/table.h"

namespace eddy::app {

// A number in large type, with its name above and a remark below.
struct StatTile {
  std::string name;
  std::string value;
  std::string remark;
};

// One of several sections: its name, and what appends it.
struct Choice {
  std::string name;
  std::function<void()> add;
};

// How what a page shows stands: "running", then how far it is, and what a reader may type next.
struct PageStatus {
  std::string word;
  std::string text;
  std::vector<std::string> commands;  // each a line: what it is for, ": ", and the command
  double written_s = 0;               // when the page was written, in seconds since 1970
  double every_s = 0;                 // how soon it is written again, and so shown again; 0: never
};

class HtmlPage {
 public:
  // Creates a page with the heading `title` and, when `subtitle` is not empty, a line below it.
  explicit HtmlPage(std::string_view title, std::string_view subtitle = "");

  // Each of these appends a section.
  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void tiles(const std::vector<StatTile>& tiles);
  // Rows may differ in length.
  void table(const Table& table);
  // One chart over the whole width.
  void chart(const training::Chart& chart);
  // Charts two by two, or one below the other on a narrow screen.
  void charts(const std::vector<training::Chart>& charts);
  // Pictures side by side, as many in a row as fit.
  // errors: ValueError when the sizes of a picture do not match its bytes.
  void pictures(const std::vector<training::Picture>& pictures);
  // Text in a fixed-width font that keeps its line breaks; long lines wrap.
  void preformatted(std::string_view text);
  // Labelled texts side by side, or one below the other on a narrow screen.
  void texts(const std::vector<training::LabelledText>& texts);
  // The sections that `add` appends, opened with a click on `summary`.
  void folded(std::string_view summary, const std::function<void()>& add);

  // How it stands; a page has one. With every_s the page loads itself again, and says how old it is.
  void status(const PageStatus& status);
  // Labelled texts of which a slider shows one, the last one at the beginning; without scripts all.
  void slider(std::string_view label, const std::vector<training::LabelledText>& texts);

  // A section in HTML.
  void append(const std::string& html) { body_ += html; }

  // Sections of which a reader chooses one, with `label` before the choices; the first is chosen at the beginning. At
  // most four; of one alone the section.
  // errors: ValueError for more.
  void choice(std::string_view label, const std::vector<Choice>& choices);

  // A style sheet and a script of this page alone, behind those of every page.
  void extra_style(std::string_view css) { extra_style_ += css; }
  void extra_script(std::string_view script) { extra_script_ += script; }

  // Returns the whole page.
  std::string html() const;

 private:
  std::string title_;
  std::string body_;
  std::string extra_style_, extra_script_;
  int choices_ = 0;
  double every_s_ = 0;
};

}  // namespace eddy::app
