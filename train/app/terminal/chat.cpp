// The commands are a table; /help shows it.
#include "train/app/terminal/chat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "train/app/views/table.h"
#include "train/words/human_text.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kMostTurnTokens = 1'000'000'000'000;

struct ChatCommand {
  const char* name;
  const char* argument;  // empty: it takes none
  const char* help;
};
constexpr ChatCommand kChatCommands[] = {
    {"save", "FILE", "save the text so far, to go on with it later (/load, or generate --session)"},
    {"load", "FILE", "go on with a text that was saved, with its temperature and seed"},
    {"forget", "", "begin a new text"},
    {"state", "", "show what the model keeps: size, norms, tokens seen, gates"},
    {"temperature", "X",
     "below 1: more predictable; above 1: more random; 0: always the most probable token"},
    {"seed", "N", "seed of what is drawn from here on"},
    {"tokens", "N", "tokens that the model writes after a line"},
    {"help", "", "show this"},
    {"quit", "", "end, as the end of the input does"},
};

const ChatCommand& chat_command(const std::string& name) {
  std::vector<std::string> names;
  for (const ChatCommand& command : kChatCommands) {
    if (name == command.name) return command;
    names.emplace_back(command.name);
  }
  fail<ValueError>(
      "/{}: no such command (nearest: /{}; /help lists them; a text that begins with a slash: //{})", name,
      nearest_match(name, names), name);
}

std::string chat_help() {
  Table table;
  for (const ChatCommand& command : kChatCommands)
    table.rows.push_back({fmt::format("/{} {}", command.name, command.argument), command.help});
  return to_text(table) +
         "Any other line is appended to the text, and the model goes on; an empty line lets it go on as it is.\n"
         "Ctrl-C stops the text, Ctrl-D ends.\n";
}

template <class Number>
Number number_within(const ChatCommand& command, const std::string& text, Number low, Number high,
                     const char* rule) {
  Number value{};
  const auto [end, error] = number_from(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high))
    fail<ValueError>("/{}: {:?} ({})", command.name, text, rule);
  return value;
}

// The same state in memory of its own, which the next tokens do not overwrite.
GenerateState copy_of_text(const GenerateState& text) {
  const NoGrad no_grad;
  GenerateState copy;
  for (const auto& [name, tensor] : text.model) copy.model.set(name, raw::copy(tensor));
  if (text.logits.defined()) copy.logits = raw::copy(text.logits);
  copy.unread = text.unread;
  copy.position = text.position;
  return copy;
}

double state_norm(const Tensor& tensor) {
  const Tensor values = raw::contiguous(
      raw::to_device(raw::cast(tensor, tensor.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32), kCpu));
  double sum = 0;
  const auto add = [&](const auto* data) {
    for (std::int64_t i = 0; i < values.elements(); ++i) {
      const auto value = static_cast<double>(data[i]);
      sum += value * value;
    }
  };
  if (values.dtype() == Dtype::f64)
    add(values.data<double>());
  else
    add(values.data<float>());
  return std::sqrt(sum);
}

}  // namespace

Chat::Chat(const Model& model, const Tokenizer& tokenizer, const SampleOptions& sample, std::int64_t tokens)
    : model_(model), tokenizer_(tokenizer), tokens_(tokens) {
  validate(sample);
  session_.sample = sample;
}

Chat::Turn Chat::turn(std::string_view line, const std::function<void(std::string_view)>& on_text,
                      const std::function<bool()>& stop) {
  if (line.starts_with("//")) line.remove_prefix(1);
  Turn turn;
  std::vector<std::int32_t> ids;
  if (!line.empty()) {
    ids = tokenizer_.encode(tokenizer_.with_known(line, turn.replaced));
    std::vector<std::string> no_newline;
    if (const std::string end = tokenizer_.with_known("\n", no_newline); no_newline.empty())
      ids = tokenizer_.encode(tokenizer_.with_known(std::string(line) + "\n", no_newline));
  }
  // Reading cannot be undone: it goes on with a copy of what was before it.
  GenerateState before = copy_of_text(session_.text);
  try {
    turn.result = generate(model_, tokenizer_, session_.text, ids, 0, session_.sample, {}, stop);
    if (!turn.result.stopped.empty())
      session_.text = std::move(before);
    else
      turn.result = generate(model_, tokenizer_, session_.text, {}, tokens_, session_.sample, on_text, stop);
  } catch (...) {
    session_.text = std::move(before);
    throw;
  }
  return turn;
}

std::string Chat::describe_state() const {
  const GenerateState& text = session_.text;
  std::string lines =
      fmt::format("tokens seen: {}\nstate: {} in {} {}\n", grouped(text.position),
                  human_bytes(text.model.bytes()), text.model.size(), plural(text.model.size(), "tensor"));
  Table tensors;
  for (const auto& [name, tensor] : text.model) {
    if (is_floating(tensor.dtype()))
      tensors.rows.push_back({name, to_string(tensor.shape()), "norm " + human_number(state_norm(tensor))});
    else if (tensor.elements() == 1)
      tensors.rows.push_back({name, std::to_string(tensor.item_int()), ""});
    else
      tensors.rows.push_back({name, to_string(tensor.shape()), "counters"});
  }
  lines += to_text(tensors, 2);
  const NoGrad no_grad;
  const auto gates = model_.diagnostics(text.model);
  if (gates.empty()) lines += "gates: this model has none to show\n";
  for (const auto& [name, value] : gates) lines += fmt::format("{}: {}\n", name, human_number(value));
  const SampleOptions& sample = session_.sample;
  return lines + fmt::format("temperature {}, top-k {}, top-p {}, seed {}, {} {} after a line\n",
                             sample.temperature, sample.top_k, sample.top_p, sample.seed, tokens_,
                             plural(tokens_, "token"));
}

Chat::Reply Chat::command(std::string_view line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string given(line.substr(1, space - 1));
  const ChatCommand& command = chat_command(given);
  std::string argument(line.substr(space));
  argument.erase(0, argument.find_first_not_of(' '));
  argument.erase(argument.find_last_not_of(' ') + 1);
  const bool takes = command.argument[0] != '\0';
  if (argument.empty() == takes)
    fail<ValueError>("/{}: {} (/{}{}{})", command.name, takes ? "nothing is given" : "it takes nothing",
                     command.name, takes ? " " : "", command.argument);
  const std::string_view name = command.name;
  Session& session = session_;
  if (name == "save") {
    save_session(argument, model_, session);
    return {fmt::format("saved in {}: {} {}, {}\n", argument, grouped(session.text.position),
                        plural(session.text.position, "token"), human_bytes(session.text.model.bytes()))};
  }
  if (name == "load") {
    session = load_session(argument, model_);
    return {fmt::format("goes on after {} {}, with temperature {} and seed {}\n",
                        grouped(session.text.position), plural(session.text.position, "token"),
                        session.sample.temperature, session.sample.seed)};
  }
  if (name == "forget") {
    session.text = GenerateState();
    return {"a new text\n"};
  }
  if (name == "state") return {describe_state()};
  if (name == "temperature") {
    session.sample.temperature = number_within<double>(command, argument, 0, 1e9, "a number, 0 or more");
    return {};
  }
  if (name == "seed") {
    session.sample.seed =
        number_within<std::uint64_t>(command, argument, 0, UINT64_MAX, "a whole number, 0 or more");
    return {};
  }
  if (name == "tokens") {
    tokens_ = number_within<std::int64_t>(command, argument, 0, kMostTurnTokens,
                                          "a whole number, 0 to 1000000000000");
    return {};
  }
  if (name == "quit") return {"", true};
  return {chat_help()};
}

}  // namespace eddy::app
