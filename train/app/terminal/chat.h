// A text that a person and a model write together, a line of the one and then some tokens of the other. What the model
// keeps of it is its state: nothing else grows, however long they write. Lines that begin with '/' are commands.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/eddy/registry.h"
#include "train/generate/generate.h"
#include "train/generate/session.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

class Chat {
 public:
  // Model and tokenizer must outlive the chat.
  Chat(const Model& model, const training::Tokenizer& tokenizer, const training::SampleOptions& sample,
       std::int64_t tokens);

  struct Turn {
    training::GenerateResult result;
    std::vector<std::string>
        replaced;  // characters of the line that the vocabulary lacks, and that were replaced
  };
  // Appends a line to the text, with a newline where the vocabulary has one, and continues it by the chosen number of
  // tokens; an empty line appends nothing. `on_text` gets their bytes. `stop` is called between tokens, and between
  // parts of the line: true ends the turn. A turn that was stopped before the model had read its line, or that fails,
  // leaves the text as it was.
  // errors: those of generate.
  Turn turn(std::string_view line, const std::function<void(std::string_view)>& on_text,
            const std::function<bool()>& stop);

  // Whether a line is a command. Two slashes begin a line of text with one.
  static bool is_command(std::string_view line) { return line.starts_with('/') && !line.starts_with("//"); }

  struct Reply {
    std::string text;  // lines to show; may be empty
    bool ends = false;
  };
  // Carries out a command.
  // errors: ValueError for an unknown command or a wrong value, with the nearest or the rule; those of save_session and
  // load_session. Nothing is changed then.
  Reply command(std::string_view line);

  const training::Session& session() const { return session_; }

 private:
  std::string describe_state() const;

  const Model& model_;
  const training::Tokenizer& tokenizer_;
  training::Session session_;
  std::int64_t tokens_;
};

}  // namespace eddy::app
