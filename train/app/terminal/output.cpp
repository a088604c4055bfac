// Output through stdio, and what standard input gives, with their errors checked.
#include "train/app/terminal/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "tensor/base/format.h"
#include "train/app/terminal/interrupt.h"
#include "train/files/standard_input.h"
#include "train/files/text_encoding.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

bool keeps_on = false;
bool lost = false;     // something that was printed, with keeps_on
std::string lost_why;  // empty: the reader left, or a stop ended the wait for it

[[noreturn]] void fail_output(const std::string& why) {
  fail<IoError>("output: cannot write to standard output: {}", why);
}

void output_failed(int error) {
  // Ctrl-C ended the wait for a slow reader: the text that it stops is not written to its end, and the next one is.
  if (error == EINTR && !keeps_on && is_interrupted()) {
    std::clearerr(stdout);
    std::cout.clear();
    return;
  }
  // Asks the pipe itself, since errno may come from a later call.
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  const bool reader_gone = error == EPIPE || (poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0);
  const std::string why = error != 0 ? std::strerror(error) : "not all of it was written";
  if (!keeps_on && reader_gone) throw OutputClosed{};
  if (!keeps_on) fail_output(why);
  if (lost) return;
  lost = true;
  if (!reader_gone && error != EINTR) lost_why = why;
}

// Returns the number of bytes at the end of a text that begin a character and do not complete it, or that may begin the
// line end "\r\n".
std::size_t cut_bytes(std::string_view text) {
  return text.ends_with('\r') ? 1 : cut_utf8_bytes(text);
}

}  // namespace

void print_bytes(std::string_view bytes) {
  errno = 0;
  // fwrite() also counts a line as written that it only kept, since its flush failed.
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || std::ferror(stdout) != 0)
    output_failed(errno);
}

void print(std::string_view text) {
  print_bytes(printable(text));
}

void flush_output() {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) output_failed(errno);
}

void say(std::string_view text) {
  const std::string line = printable(text) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string read_standard_input(const std::string& where) {
  constexpr std::size_t kMost = std::size_t{1} << 24;
  std::string text;
  char part[4096];
  for (std::size_t bytes; (bytes = std::fread(part, 1, sizeof part, stdin)) > 0;) {
    text.append(part, bytes);
    if (text.size() > kMost)
      fail<ValueError>("{} is longer than {} (shorten it)", where,
                       human_bytes(static_cast<std::int64_t>(kMost)));
  }
  if (std::ferror(stdin) != 0)
    fail<IoError>("{}: cannot read standard input: {}", where, std::strerror(errno));
  return decode_text(std::move(text), kInputName);
}

void keep_on_without_output() {
  keeps_on = true;
}

bool output_is_lost() {
  return lost;
}

void report_lost_output(bool is_result) {
  if (lost_why.empty()) return;
  if (is_result) fail_output(lost_why + " (the file that was asked for is written)");
  say(fmt::format("warning: standard output is not complete: {} (all results are in files)", lost_why));
}

void print_now(std::string_view text) {
  print(text);
  flush_output();
}

bool is_terminal(int stream) {
  return isatty(stream) != 0;
}

std::string TerminalText::take(std::string_view bytes) {
  waiting_ += bytes;
  const std::size_t whole = waiting_.size() - cut_bytes(waiting_);
  std::string text = printable(std::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return text;
}

std::string TerminalText::finish() {
  std::string text = printable(waiting_);
  waiting_.clear();
  return text;
}

}  // namespace eddy::app
