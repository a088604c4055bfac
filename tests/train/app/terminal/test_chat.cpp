// A text written together: turns, commands, and what is left as it was when something fails.
#include "train/app/terminal/chat.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/every_model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

constexpr const char* kText = "abcdefghij\n/";
constexpr std::int64_t kVocab = 12;
const SampleOptions kDraws{.temperature = 1.2, .top_k = 0, .top_p = 1, .seed = 77};

struct Talk {
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("char", kText);
  std::unique_ptr<Model> model;
  std::unique_ptr<Chat> chat;

  explicit Talk(const ModelName& name, std::int64_t context = 96, std::int64_t tokens = 9) {
    ModelConfig config = even_config(name, kVocab, context);
    config.init_std = 0.3;
    if (std::string(name.model) == "regular") config.positions = true;  // its context ends
    model = make_model(config);
    model->params().initialize(3);
    begin(tokens);
  }
  void begin(std::int64_t tokens = 9) { chat = std::make_unique<Chat>(*model, *tokenizer, kDraws, tokens); }
  std::string say(const std::string& line, int stop_after = 1000) {
    std::string text;
    int asked = 0;
    last = chat->turn(
        line, [&](std::string_view bytes) { text += bytes; }, [&] { return asked++ >= stop_after; });
    return text;
  }
  Chat::Turn last;
};

std::string refusal(Chat& chat, const std::string& line) {
  return error_of<Error>([&] { chat.command(line); });
}

}  // namespace

TEST_CASE("chat: turns are the text that generate writes after the same lines, in every family") {
  const OneThread one;
  for (const ModelName& name : {ModelName{"recurrent_transformer", "unit_forget"},
                                {"block_recurrent", "slide"},
                                {"blockwise_recurrent", "memory_llama"},
                                {"staircase", "staircase"}}) {
    CAPTURE(name.model);
    Talk talk(name);
    const std::string said = talk.say("abc"), more = talk.say(""), third = talk.say("d");
    GenerateState text;
    std::string whole;
    const auto add = [&](std::string_view bytes) { whole += bytes; };
    generate(*talk.model, *talk.tokenizer, text, talk.tokenizer->encode("abc\n"), 18, kDraws, add);
    generate(*talk.model, *talk.tokenizer, text, talk.tokenizer->encode("d\n"), 9, kDraws, add);
    CHECK(said + more + third == whole);
    CHECK(talk.chat->session().text.position == 4 + 18 + 2 + 9);
  }
}

TEST_CASE("chat: a text that was saved and loaded goes on as if it had not been, and forget begins anew") {
  const OneThread one;
  const TempFolder folder;
  Talk talk({"recurrent_transformer", "unit_forget"});
  const std::string first = talk.say("abc");
  CHECK(contains(talk.chat->command("/save " + folder.path("a b.session")).text, "saved in "));
  const std::string second = talk.say("de");
  talk.begin();
  CHECK(contains(talk.chat->command("/load   " + folder.path("a b.session") + " ").text,
                 "goes on after 13 tokens"));
  CHECK(talk.say("de") == second);
  CHECK(talk.chat->command("/forget").text == "a new text\n");
  CHECK(talk.chat->session().text.position == 0);
  CHECK(talk.say("abc") == first);
  folder.write("mine.txt", "mine");
  CHECK(contains(refusal(*talk.chat, "/save " + folder.path("mine.txt")), "is not"));
  CHECK(contains(refusal(*talk.chat, "/load " + folder.path("nothing")), "nothing"));
  CHECK(read_bytes(folder.path("mine.txt")) == "mine");
  CHECK(talk.chat->session().text.position == 13);
  talk.chat->command("/forget");
  CHECK(contains(refusal(*talk.chat, "/save " + folder.path("b")), "nothing"));
}

TEST_CASE("chat: a save removes what one left behind that was killed") {
  const TempFolder folder;
  Talk talk({"recurrent_transformer", "unit_forget"});
  talk.say("abc");
  // The number of the process is above those that Linux gives.
  const std::string half = folder.write("a.session.tmp-4194305-0", "half"),
                    other = folder.write("b.session.tmp-4194305-0", "half");
  talk.chat->command("/save " + folder.path("a.session"));
  CHECK(!std::filesystem::exists(half));
  CHECK(std::filesystem::exists(other));
}

TEST_CASE("chat: the state is shown with its size, norms, tokens and gates") {
  Talk talk({"block_recurrent", "block_recurrent"});
  CHECK(contains(talk.chat->command("/state").text, "tokens seen: 0\nstate: 0 B in 0 tensors\n"));
  talk.say("abc");
  const std::string shown = talk.chat->command("/state").text;
  for (const char* part :
       {"tokens seen: 13\n", " norm ", "state_gate", "temperature 1.2, ", "seed 77, 9 tokens"})
    CHECK_MESSAGE(contains(shown, part), shown);
  CHECK_FALSE(contains(shown, "nan"));
  Talk plain({"recurrent_transformer", "unit_forget"});
  CHECK(contains(plain.chat->command("/state").text, "gates: this model has none to show\n"));
}

TEST_CASE("chat: temperature, seed and the number of tokens hold from the next line on") {
  const OneThread one;
  Talk talk({"recurrent_transformer", "unit_forget"});
  const std::string first = talk.say("abc");
  talk.begin();
  talk.chat->command("/seed 78");
  CHECK(talk.say("abc") != first);
  talk.begin();
  talk.chat->command("/temperature 0");
  talk.chat->command("/tokens 5");
  const std::string greedy = talk.say("abc");
  CHECK(greedy.size() == 5);
  talk.chat->command("/forget");
  talk.chat->command("/seed 5");
  CHECK(talk.say("abc") == greedy);
  for (const char* line :
       {"/temperature", "/temperature -1", "/temperature nan", "/temperature 1x", "/seed -1", "/seed 1.5",
        "/seed 99999999999999999999", "/tokens -1", "/forget all", "/", "/sate", "/ save x"})
    CHECK_MESSAGE(!refusal(*talk.chat, line).empty(), line);
  CHECK(talk.chat->session().sample.temperature == 0);
  CHECK(talk.chat->session().sample.seed == 5);
  CHECK(contains(refusal(*talk.chat, "/stat"), "nearest: /state"));
}

TEST_CASE("chat: help names every command, and a text may begin with a slash") {
  Talk talk({"recurrent_transformer", "unit_forget"});
  const std::string help = talk.chat->command("/help").text;
  for (const char* name : {"/save FILE", "/load FILE", "/forget", "/state", "/temperature X", "/seed N",
                           "/tokens N", "/help", "/quit"})
    CHECK_MESSAGE(contains(help, name), name);
  CHECK(Chat::is_command("/state"));
  CHECK_FALSE(Chat::is_command("//state"));
  CHECK_FALSE(Chat::is_command("a /state"));
  CHECK(talk.chat->command("/quit").ends);
  talk.say("//a");
  CHECK(talk.chat->session().text.position == 3 + 9);  // "/a" and the newline
}

TEST_CASE("chat: a stop ends a text between two tokens, and a line that was not read leaves no trace") {
  const OneThread one;
  for (const ModelName& name :
       {ModelName{"recurrent_transformer", "unit_forget"}, {"block_recurrent", "slide"}}) {
    CAPTURE(name.model);
    Talk talk(name, 2000);
    const std::string first = talk.say("abc"), second = talk.say("d");
    talk.begin();
    CHECK(talk.say("abc") == first);
    const std::string part = talk.say("d", 3);
    CHECK(!talk.last.result.stopped.empty());
    CHECK(part.size() < second.size());
    CHECK(second.starts_with(part));
    CHECK(talk.say("").size() == 9);  // it goes on
    talk.begin();
    CHECK(talk.say("abc") == first);
    const std::string long_line(700, 'a');  // read in several parts
    CHECK(talk.say(long_line, 2).empty());
    CHECK(talk.chat->session().text.position == 13);
    CHECK(talk.say("d") == second);
  }
}

TEST_CASE("chat: what the vocabulary lacks is replaced and named, and a full context says so") {
  Talk talk({"recurrent_transformer", "regular"}, 32);
  talk.say("axbx");
  CHECK(talk.last.replaced.size() == 1);
  CHECK(contains(talk.last.replaced[0], "U+0078"));
  const std::int64_t before = talk.chat->session().text.position;
  CHECK(contains(error_of<ValueError>([&] { talk.say(std::string(40, 'a')); }), "its context is full"));
  CHECK(talk.chat->session().text.position == before);
  talk.say("a");
  talk.say("");
  talk.say("");
  CHECK(contains(talk.last.result.stopped, "is full"));
}
