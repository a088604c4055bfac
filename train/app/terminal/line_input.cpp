// libedit draws the line and keeps the history. Characters are read here, so that Ctrl-C ends the wait for them.
#include "train/app/terminal/line_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

#include "tensor/base/format.h"
#include "train/app/terminal/interrupt.h"
#include "train/files/standard_input.h"
#include "train/files/text_encoding.h"

#ifdef EDDY_LIBEDIT
#include <histedit.h>
#endif

namespace eddy::app {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 24;

// Ctrl-C makes a terminal drop what was typed before it, also between a poll that saw it and the read: the read would wait
// for the next key, and the interrupt with it. So a terminal is read through a description that never waits; another one,
// since that of standard input is shared with the shell.
int input_descriptor() {
  static const int own = [] {
    const char* const name = ::isatty(STDIN_FILENO) ? ::ttyname(STDIN_FILENO) : nullptr;
    return name == nullptr ? -1 : ::open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }();
  return own >= 0 ? own : STDIN_FILENO;
}

// Reads what there is, at least a byte. Returns how much; 0 at the end of the input; -1 for Ctrl-C. A signal ends only a
// wait that has begun, or another thread takes it: so the wait looks at the flag ten times a second.
ssize_t read_some(char* bytes, std::size_t most) {
  for (;;) {
    if (is_interrupted()) return -1;
    pollfd input{input_descriptor(), POLLIN, 0};
    if (::poll(&input, 1, 100) == 0) continue;
    const ssize_t got = ::read(input.fd, bytes, most);
    if (got >= 0) return got;
    if (errno != EINTR && errno != EAGAIN)
      fail<IoError>("chat: cannot read standard input: {}", std::strerror(errno));
  }
}

}  // namespace

#ifdef EDDY_LIBEDIT

struct LineInput::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  const char* prompt = nullptr;
  bool failed = false;

  explicit Editor(const char* shown) : prompt(shown) {
    // It handles characters by the locale; numbers keep their point.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    line = el_init("eddy", stdin, stdout, stderr);
    history = history_init();
    if (line == nullptr || history == nullptr) return;
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
  }
  ~Editor() {
    if (line != nullptr) el_end(line);
    if (history != nullptr) history_end(history);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  static Editor* of(EditLine* line) {
    void* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return static_cast<Editor*>(self);
  }
  static char* prompt_of(EditLine* line) { return const_cast<char*>(of(line)->prompt); }
  // Returns 1 with a character, 0 at the end of the input. Ctrl-C ends the line, which is then thrown away.
  static int read_character(EditLine* line, wchar_t* character) {
    std::mbstate_t state{};
    for (;;) {
      char byte = 0;
      ssize_t got = 0;
      try {
        got = read_some(&byte, 1);
      } catch (const Error&) {  // no exception passes through C
        of(line)->failed = true;
        return 0;
      }
      if (got < 0) {
        *character = L'\n';
        return 1;
      }
      if (got == 0) return 0;
      const std::size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<std::size_t>(-2)) continue;  // a part of a character
      if (length == static_cast<std::size_t>(-1)) *character = L'\ufffd';
      return 1;
    }
  }
};

bool edits_lines() {
  return true;
}

LineInput::Line LineInput::next_edited() {
  EditLine* const line = editor_->line;
  el_resize(line);
  // Before the prompt is shown: libedit does it behind that, and a Ctrl-D typed in between arrives as a zero.
  el_set(line, EL_PREP_TERM, 1);
  int count = 0;
  const char* const text = el_gets(line, &count);
  if (take_interrupt()) return {End::interrupted, ""};
  if (editor_->failed) fail<IoError>("chat: cannot read standard input");
  if (text == nullptr || count <= 0) return {End::end_of_input, ""};
  std::string taken(text, static_cast<std::size_t>(count));
  if (taken.ends_with('\n')) taken.pop_back();
  HistEvent event{};
  if (!taken.empty()) ::history(editor_->history, &event, H_ENTER, taken.c_str());
  return {End::line, std::move(taken)};
}

#else

struct LineInput::Editor {
  explicit Editor(const char*) {}
  const void* line = nullptr;
};

bool edits_lines() {
  return false;
}

LineInput::Line LineInput::next_edited() {
  return next_plain();
}

#endif

LineInput::LineInput(bool terminal, std::string prompt)
    : terminal_(terminal), prompt_(std::move(prompt)), has_begun_(terminal) {
  if (terminal_) editor_ = std::make_unique<Editor>(prompt_.c_str());
  if (editor_ && editor_->line == nullptr) editor_.reset();  // a terminal of a kind that cannot be drawn on
}

LineInput::~LineInput() = default;

LineInput::Line LineInput::next() {
  return editor_ ? next_edited() : next_plain();
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
  if (terminal_) {
    std::fputs(prompt_.c_str(), stdout);
    std::fflush(stdout);
  }
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
    const ssize_t got = read_some(part, sizeof part);
    if (got < 0) {
      take_interrupt();
      read_.clear();
      return {End::interrupted, ""};
    }
    at_end_ = got == 0;
    read_.append(part, static_cast<std::size_t>(got));
    if (has_begun_) continue;
    has_begun_ = begin();
    looked = 0;
  }
}

}  // namespace eddy::app
