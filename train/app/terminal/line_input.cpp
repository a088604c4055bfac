// libedit draws the line and keeps the history. Keys are read here, so that Ctrl-C ends the wait for them, and a pasted
// text comes to libedit as one key.
#include "train/app/terminal/line_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/app/terminal/interrupt.h"
#include "train/files/standard_input.h"
#include "train/files/text_encoding.h"
#include "train/record/progress.h"

#ifdef EDDY_LIBEDIT
#include <histedit.h>
#endif

namespace eddy::app {
using namespace training;
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 24;
// A signal ends only a wait that has begun, or another thread takes it: so a wait looks ten times a second at what was
// noted.
constexpr int kWaitMs = 100;
// A pasted text arrives without such a gap, and a person does not feel it.
constexpr int kQuietMs = 20;

// Ctrl-C makes a terminal drop what was typed before it, also between a poll that saw it and the read: the read would
// wait for the next key, and the interrupt with it. So a terminal is read through a description that never waits;
// another one, since that of standard input is shared with the shell.
int input_descriptor() {
  static const int own = [] {
    const char* const name = ::isatty(STDIN_FILENO) ? ::ttyname(STDIN_FILENO) : nullptr;
    return name == nullptr ? -1 : ::open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }();
  return own >= 0 ? own : STDIN_FILENO;
}

// The size of the terminal; 0 where it is not known.
winsize window_size() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size : winsize{};
}

// Whether libedit, which allocates each cell of the terminal, is to draw on one of this size.
bool can_draw_on(const winsize& size) {
  constexpr int kMostCells = 1 << 23;
  return int{size.ws_row} * std::int64_t{size.ws_col} <= kMostCells;
}

constexpr ssize_t kNothing = -1;

// Reads what there is, or comes within some milliseconds. Returns how much; 0 at the end of the input; kNothing.
ssize_t read_within(int ms, char* bytes, std::size_t most) {
  pollfd input{input_descriptor(), POLLIN, 0};
  if (::poll(&input, 1, ms) <= 0) return kNothing;
  const ssize_t got = ::read(input.fd, bytes, most);
  if (got < 0 && errno != EINTR && errno != EAGAIN)
    fail<IoError>("chat: cannot read standard input: {}", std::strerror(errno));
  return got < 0 ? kNothing : got;
}

}  // namespace

// What came of a wait: keys, a change of the terminal, or nothing: it was interrupted, or the input is at its end.
struct LineInput::Arrival {
  std::optional<KeyDecoder::Piece> piece{};
  PromptTerminal::Change change = PromptTerminal::Change::none;
  bool interrupted = false;
};

LineInput::Arrival LineInput::wait_for_keys(PromptTerminal& terminal) {
  Arrival arrival;
  for (bool quiet = false;;) {
    arrival.interrupted = is_interrupted();
    arrival.change = terminal.answer_signals();
    if (arrival.interrupted || arrival.change != PromptTerminal::Change::none) return arrival;
    arrival.piece = keys_.next(quiet || at_end_);
    if (arrival.piece || at_end_) return arrival;
    char part[4096];
    const ssize_t got = read_within(keys_.waits() ? kQuietMs : kWaitMs, part, sizeof part);
    quiet = got == kNothing;
    at_end_ = got == 0;
    if (got > 0) keys_.add({part, static_cast<std::size_t>(got)});
  }
}

LineInput::Line LineInput::line_of(std::string text) const {
  while (text.ends_with('\n')) text.pop_back();
  const bool pasted =
      text.find('\n') != std::string::npos || (!pasted_first_.empty() && text.starts_with(pasted_first_));
  return {End::line, std::move(text), pasted};
}

#ifdef EDDY_LIBEDIT

// The character that tells libedit of a pasted text: a control character that no keyboard has.
constexpr wchar_t kPasteKey = L'\u009f';
constexpr const char* kPasteKeyName = "\\237";  // as libedit reads it

struct LineInput::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  LineInput& input;
  PromptTerminal* terminal = nullptr;  // while a line is awaited
  std::mbstate_t state{};              // of the typed bytes
  std::wstring pasted;                 // what libedit is to take with the next kPasteKey
  std::exception_ptr error;            // no exception passes through C

  explicit Editor(LineInput& owner) : input(owner) {
    const KeptModes modes;
    // It handles characters by the locale; numbers keep their point.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    line = el_init("eddy", stdin, stdout, stderr);
    history = history_init();
    if (!draws()) return;
    HistEvent event{};
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_CLIENTDATA, this);
    el_set(line, EL_PROMPT, &prompt_of);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_SIGNAL, 0);  // its handlers would pass Ctrl-C on to all processes of the terminal
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_GETCFN, &read_character);
    el_set(line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    bind_keys();
    el_set(line, EL_ADDFN, "eddy-paste", "Insert a pasted text", &insert_pasted);
    el_set(line, EL_BIND, kPasteKeyName, "eddy-paste", nullptr);
  }
  ~Editor() {
    const KeptModes modes;
    if (line != nullptr) el_end(line);
    if (history != nullptr) history_end(history);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  // Keys that libedit does not know: it would put what follows their first three bytes into the line, as ";5D".
  void bind_keys() const {
    const auto bind = [&](const char* keys, const char* command) {
      el_set(line, EL_BIND, keys, command, nullptr);
    };
    for (const char* const home : {"\\e[1~", "\\e[7~"}) bind(home, "ed-move-to-beg");
    for (const char* const end : {"\\e[4~", "\\e[8~"}) bind(end, "ed-move-to-end");
    for (const char* const with : {"2", "3", "5", "6"}) {  // shift, Alt, Ctrl, both
      const std::string begin = std::string("\\e[1;") + with;
      bind((begin + "A").c_str(), "ed-prev-history");
      bind((begin + "B").c_str(), "ed-next-history");
      bind((begin + "C").c_str(), "em-next-word");
      bind((begin + "D").c_str(), "ed-prev-word");
      bind((begin + "F").c_str(), "ed-move-to-end");
      bind((begin + "H").c_str(), "ed-move-to-beg");
    }
    // Insert, the pages, and F1 to F12 do nothing here.
    for (const char* const number :
         {"2", "5", "6", "11", "12", "13", "14", "15", "17", "18", "19", "20", "21", "23", "24"})
      bind((std::string("\\e[") + number + "~").c_str(), "ed-ignore");
    bind("\\e\\e", "ed-ignore");
  }

  // Whether libedit knows this kind of terminal.
  bool draws() const {
    int edits = 0;
    return line != nullptr && history != nullptr && el_get(line, EL_EDITMODE, &edits) == 0 && edits != 0;
  }

  static Editor& of(EditLine* line) {
    void* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* prompt_of(EditLine* line) { return of(line).input.prompt_.data(); }

  // The function of kPasteKey. libedit calls it between two keys, where its line may grow.
  static unsigned char insert_pasted(EditLine* line, wint_t /*key*/) {
    return el_winsertstr(line, std::exchange(of(line).pasted, {}).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  // Returns 1 with a character, 0 at the end of the input. Ctrl-C ends the line, which is then thrown away.
  static int read_character(EditLine* line, wchar_t* character) {
    Editor& self = of(line);
    try {
      while (!self.next_character(*character)) {
        Arrival arrival = self.input.wait_for_keys(*self.terminal);
        if (arrival.interrupted) {
          *character = L'\n';
          return 1;
        }
        if (arrival.change != PromptTerminal::Change::none) {
          self.draw_again(arrival.change);
        } else if (!arrival.piece) {
          return 0;
        } else if (!arrival.piece->pasted) {
          self.input.read_ += arrival.piece->text;
        } else {
          const LineInfoW* const now = el_wline(line);
          if (now->cursor == now->buffer) self.input.pasted_first_ = arrival.piece->text;
          self.pasted = wide(arrival.piece->text);
          *character = kPasteKey;
          return 1;
        }
      }
      return 1;
    } catch (...) {
      self.error = std::current_exception();
      return 0;
    }
  }

  // Takes a character off `bytes`, U+FFFD for what is none. Returns whether there is a whole one.
  static bool take_character(std::string& bytes, std::size_t& at, std::mbstate_t& state, wchar_t& character) {
    while (at < bytes.size()) {
      const bool begins = std::mbsinit(&state) != 0;
      const std::size_t length = std::mbrtowc(&character, bytes.data() + at, 1, &state);
      const bool is_wrong = length == static_cast<std::size_t>(-1);
      if (begins || !is_wrong) ++at;  // a byte that does not complete a character may begin the next one
      if (length == static_cast<std::size_t>(-2)) continue;  // a part of a character
      if (is_wrong) {
        state = {};
        character = L'\ufffd';
      }
      return true;
    }
    return false;
  }

  bool next_character(wchar_t& character) {
    std::size_t at = 0;
    const bool whole = take_character(input.read_, at, state, character);
    input.read_.erase(0, at);
    if (whole && character == kPasteKey) character = L'\ufffd';
    return whole;
  }

  // A pasted text as libedit takes it, which ends a text at a zero.
  static std::wstring wide(std::string text) {
    std::wstring result;
    std::mbstate_t state{};
    std::size_t at = 0;
    for (wchar_t character = 0; take_character(text, at, state, character);)
      result += character == L'\0' ? L'\ufffd' : character;
    return result;
  }

  // The rows between the begin of the prompt and the cursor, on a terminal of that many columns.
  int rows_above(int columns) const {
    const LineInfoW* const now = el_wline(line);
    std::wstring shown = wide(input.prompt_);
    shown.append(now->buffer, now->cursor);
    int row = 0, column = 0;
    for (const wchar_t character : shown) {
      if (character == L'\n') {
        ++row;
        column = 0;
        continue;
      }
      const int width = character == L'\t' ? 8 - column % 8 : std::max(::wcwidth(character), 1);
      if (column + width > columns) {
        ++row;
        column = 0;
      }
      column += width;
    }
    return row + (column >= columns ? 1 : 0);
  }

  // Draws prompt and line anew: where they begin on a terminal that wrapped its lines for another width, or on the line
  // where the program went on.
  void draw_again(PromptTerminal::Change change) {
    const bool resumed = change == PromptTerminal::Change::resumed;
    if (resumed)
      for (const int edits : {0, 1}) el_set(line, EL_PREP_TERM, edits);
    const winsize size = window_size();
    if (!can_draw_on(size)) return;
    if (const int rows = resumed || size.ws_col == 0 ? 0 : rows_above(size.ws_col); rows > 0)
      std::fprintf(stdout, "\x1b[%dA", rows);
    std::fputs("\r\x1b[J", stdout);
    el_resize(line);
    el_set(line, EL_REFRESH);
  }
};

bool edits_lines() {
  return true;
}

LineInput::Line LineInput::next_edited() {
  EditLine* const line = editor_->line;
  PromptTerminal terminal(kMarkPastes, kMarkNoPastes);
  editor_->terminal = &terminal;
  // Before the prompt is shown: libedit does it behind that, and a Ctrl-D typed in between arrives as a zero.
  el_set(line, EL_PREP_TERM, 1);
  int count = 0;
  const char* const text = el_gets(line, &count);
  editor_->terminal = nullptr;
  if (take_interrupt()) return {End::interrupted, ""};
  if (editor_->error) std::rethrow_exception(std::exchange(editor_->error, nullptr));
  if (text == nullptr || count <= 0) return {End::end_of_input, ""};
  Line taken = line_of(std::string(text, static_cast<std::size_t>(count)));
  HistEvent event{};
  if (!taken.text.empty()) ::history(editor_->history, &event, H_ENTER, taken.text.c_str());
  return taken;
}

#else

struct LineInput::Editor {
  explicit Editor(LineInput&) {}
  static bool draws() { return false; }
};

bool edits_lines() {
  return false;
}

LineInput::Line LineInput::next_edited() {
  return next_typed();
}

#endif

LineInput::LineInput(bool prompts, std::string prompt)
    : prompts_(prompts), terminal_(::isatty(STDIN_FILENO) == 1), prompt_(std::move(prompt)) {
  if (!prompts_ || !terminal_ || !moves_cursor(stdout) || !can_draw_on(window_size())) return;
  editor_ = std::make_unique<Editor>(*this);
  if (!editor_->draws()) editor_.reset();
}

LineInput::~LineInput() = default;

LineInput::Line LineInput::next() {
  if (!terminal_) return next_plain();
  pasted_first_.clear();
  Line line = editor_ && can_draw_on(window_size()) ? next_edited() : next_typed();
  std::clearerr(
      stdout);  // a signal may have ended a write of the prompt, and what is printed next is none of it
  if (line.end == End::interrupted) {
    keys_.clear();
    read_.clear();
  }
  return line;
}

// The terminal edits the line and shows it.
LineInput::Line LineInput::next_typed() {
  PromptTerminal terminal("", "");
  std::string text;
  const auto show = [&] {
    if (!prompts_) return;
    std::fputs((prompt_ + text).c_str(), stdout);
    std::fflush(stdout);
  };
  show();
  for (;;) {
    if (const std::size_t newline = read_.find('\n'); newline != std::string::npos) {
      text += read_.substr(0, newline);
      read_.erase(0, newline + 1);
      return line_of(std::move(text));
    }
    text += std::exchange(read_, {});
    if (text.size() > kLongestLine)
      fail<ValueError>("chat: a line is longer than {} bytes (break it)", kLongestLine);
    const Arrival arrival = wait_for_keys(terminal);
    if (arrival.interrupted) {
      take_interrupt();
      return {End::interrupted, ""};
    }
    if (arrival.change == PromptTerminal::Change::resumed) show();
    if (arrival.change != PromptTerminal::Change::none) continue;
    if (!arrival.piece) return text.empty() ? Line{End::end_of_input, ""} : line_of(std::move(text));
    if (arrival.piece->pasted && text.empty()) pasted_first_ = arrival.piece->text;
    (arrival.piece->pasted ? text : read_) += arrival.piece->text;
  }
}

// A byte order mark may come in parts, and what stands behind one of UTF-16 becomes UTF-8 as a whole.
bool LineInput::begin() {
  using namespace std::string_view_literals;
  bool wide = false;
  for (const std::string_view mark : {"\xef\xbb\xbf"sv, "\xff\xfe"sv, "\xfe\xff"sv, "\0\0\xfe\xff"sv}) {
    if (!at_end_ && mark != read_ && mark.starts_with(read_)) return false;
    wide = wide || (mark.size() != 3 && read_.starts_with(mark));
  }
  if (wide && !at_end_) return false;
  if (training::encoding_of(read_).mark > 0)
    read_ = training::decode_text(std::move(read_), training::kInputName);
  return true;
}

LineInput::Line LineInput::next_plain() {
  for (std::size_t looked = 0;;) {
    const std::size_t newline = has_begun_ ? read_.find('\n', looked) : std::string::npos;
    if (newline != std::string::npos || (at_end_ && !read_.empty())) {
      Line line{End::line, read_.substr(0, newline)};
      if (line.text.ends_with('\r')) line.text.pop_back();  // of a file with the line ends of Windows
      read_.erase(0, newline == std::string::npos ? newline : newline + 1);
      return line;
    }
    if (at_end_) return {End::end_of_input, ""};
    looked = read_.size();
    if (looked > kLongestLine)
      fail<ValueError>("chat: a line is longer than {} bytes (break it)", kLongestLine);
    char part[4096];
    ssize_t got = kNothing;
    while (got == kNothing) {
      if (take_interrupt()) {
        read_.clear();
        return {End::interrupted, ""};
      }
      got = read_within(kWaitMs, part, sizeof part);
    }
    at_end_ = got == 0;
    read_.append(part, static_cast<std::size_t>(got));
    if (has_begun_) continue;
    has_begun_ = begin();
    looked = 0;
  }
}

}  // namespace eddy::app
