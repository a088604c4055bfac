// `eddy chat`: a text that a person and a model write together, line by line.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/ranges.h>

#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/app/terminal/chat.h"
#include "train/app/terminal/interrupt.h"
#include "train/app/terminal/line_input.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct ChatFlags {
  RunOptions run;
  std::string load;
  std::int64_t tokens = 200;
  SampleOptions sample;
};

int run_chat(const ChatFlags& flags) {
  const LoadedRun run = load_text_run("chat", flags.run, " (chat writes text)");
  Chat chat(*run.model, *run.tokenizer, flags.sample, flags.tokens);
  if (!flags.load.empty()) chat.command("/load " + flags.load);
  const bool typed = is_terminal(0) && is_terminal(1);
  if (typed) {
    print_line("{}, {} parameters, step {}{}", run.config.model.model,
               human_count(static_cast<double>(run.model->params().count())), run.step,
               run.step == 0 ? ": nothing was trained, and without imported weights the text is noise" : "");
    print_line("A line is continued. /help lists commands, Ctrl-C stops the text, Ctrl-D ends.");
    if (!edits_lines())
      print_line("Lines are not edited: this build has no libedit (install libedit-dev and build again).");
    flush_output();
  }
  const InterruptFlag interrupts;
  LineInput input(typed, "> ");
  TerminalText safe;
  bool at_line_begin = true, has_failed = false, reader_left = false;
  // A reader that leaves ends the text that is being written; a command behind it may still save what there is.
  const auto unless_closed = [&](const auto& write) {
    try {
      write();
    } catch (const OutputClosed&) {
      reader_left = true;
      keep_on_without_output();
    }
  };
  const auto show = [&](std::string_view bytes) {
    if (!bytes.empty()) at_line_begin = bytes.ends_with('\n');
    unless_closed([&] {
      print_bytes(is_terminal(1) ? safe.take(bytes) : std::string(bytes));
      flush_output();
    });
  };
  const auto tell = [&](std::string_view text) { unless_closed([&] { print_now(text); }); };
  for (std::int64_t number = 1;; ++number) {
    const LineInput::Line line = input.next();
    if (line.end == LineInput::End::interrupted) {
      if (!typed) return 130;
      continue;
    }
    if (line.end == LineInput::End::end_of_input) break;
    // A pasted text is text, also one that begins with a slash.
    const std::string said = line.pasted && line.text.starts_with('/') ? "/" + line.text : line.text;
    if (reader_left && !Chat::is_command(said))
      fail<IoError>("chat: standard output is closed, and line {} asks for more text (it is not read)",
                    number);
    try {
      if (Chat::is_command(said)) {
        const Chat::Reply reply = chat.command(said);
        if (!reader_left) tell(reply.text);
        if (reader_left) say(reply.text.substr(0, reply.text.find_last_not_of('\n') + 1));
        if (reply.ends) break;
        continue;
      }
      const Chat::Turn turn = chat.turn(said, show, [&] { return is_interrupted() || reader_left; });
      take_interrupt();
      tell(safe.finish());
      if (!at_line_begin || !typed) tell("\n");
      at_line_begin = true;
      if (!turn.replaced.empty())
        say(fmt::format("the vocabulary lacks {}: replaced", fmt::join(turn.replaced, ", ")));
      if (!turn.result.stopped.empty() && !turn.result.stopped.starts_with("interrupted"))
        say(fmt::format("stopped: {} (/forget begins a new text)", turn.result.stopped));
    } catch (const Error& error) {  // it is the line's, and the next one may be better
      take_interrupt();
      tell(safe.finish());
      if (!at_line_begin) tell("\n");
      at_line_begin = true;
      has_failed = true;
      say(fmt::format("error: {}", error.what()));
    }
  }
  if (typed) tell("\n");
  return has_failed && !typed ? 1 : 0;
}

Described describe_chat(CLI::App& command) {
  const auto flags = std::make_shared<ChatFlags>();
  add_run_argument(command, flags->run.path);
  add_option(command, "--load", flags->load, "Go on with a text that /save or generate --save-session saved",
             not_empty());
  add_option(command, "--tokens", flags->tokens, "Tokens that the model writes after a line",
             whole_number(0, 1'000'000'000'000));
  add_sampling_options(command, flags->sample);
  add_checkpoint_option(command, flags->run.checkpoint, "Checkpoint of the run");
  add_precision_option(command, flags->run.precision);
  add_device_option(command, flags->run.device);
  command.footer(
      fmt::format("Lines from a pipe or a file are turns too: printf 'Once\\n/state\\n' | {} chat runs/a",
                  program_name()));
  return {[flags] { return run_chat(*flags); }};
}

}  // namespace

Command commands::chat() {
  return {"chat", "Write a text together with a trained model, line by line", Computes::products,
          Results::printed, describe_chat};
}

}  // namespace eddy::app
