// `eddy tokenizer train` makes a vocabulary from texts; `eddy tokenizer show` prints what is in one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/app/views/table.h"
#include "train/config/run_config.h"
#include "train/fetch/named_data.h"
#include "train/files/output_file.h"
#include "train/files/text_file.h"
#include "train/record/percent_line.h"
#include "train/run/checkpoint.h"
#include "train/text/documents.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/text_files.h"
#include "train/text/text_measures.h"
#include "train/text/vocabulary_training.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

struct TokenizerFlags {
  std::string data, out, subject, text, show_data;
  DataConfig cutting;  // how the files are cut into documents
  VocabularyOptions options;
  std::int64_t megabytes = 256;
};

bool reads_json(const TokenizerFlags& flags) {
  return !flags.cutting.json_field.empty();
}

int run_train_tokenizer(TokenizerFlags& flags) {
  if (!is_sentencepiece_path(flags.out))
    fail<ValueError>(
        "tokenizer train: --out is '{}' (a name that ends with .model, by which configurations know it)",
        flags.out);
  if (document_unit(flags.cutting) == DocumentUnit::folder &&
      (reads_json(flags) || flags.cutting.separator != kEndOfText))
    fail<ValueError>(
        "tokenizer train: --document folder joins files to one document, and --separator and --json-field cut them (leave "
        "one out)");
  check_output("tokenizer train", flags.out, kNewFile);
  flags.options.most_bytes = flags.megabytes << 20;
  flags.options.cut = cut_rule(flags.cutting);
  const TextFiles texts =
      vocabulary_files(local_data(flags.data, std::cerr), document_unit(flags.cutting), reads_json(flags));
  if (is_terminal(2))
    say(fmt::format("tokenizer train: reads the text, and trains {} tokens on at most {} MB of it",
                    flags.options.size, flags.megabytes));
  const TrainedVocabulary made = train_vocabulary(texts.files, flags.options);
  write_output_file("tokenizer train", flags.out, made.model, kNewFile);
  const std::size_t files = single_files(texts.files).size();
  print_line("text: {} {}, {} bytes, {} of them trained on{}", files, plural(files, "file"), made.bytes,
             made.used_bytes, describe_left_out(texts));
  print_line("characters: {}, {} of them written as bytes", made.characters, made.without_piece);
  print_line("vocabulary: {} tokens ({}), {}", flags.options.size, flags.options.type, flags.out);
  return 0;
}

// Loads the tokenizer of a .model file, a tokenizer.json, a checkpoint or a run.
std::unique_ptr<Tokenizer> load_tokenizer_of(const std::string& subject) {
  std::error_code error;
  if (is_sentencepiece_path(subject) && !fs::is_directory(subject, error)) return read_sentencepiece(subject);
  if (fs::is_regular_file(subject, error) && fs::path(subject).extension() != ".json")
    fail<ValueError>(
        "tokenizer show: {} is no vocabulary (a .model file, a tokenizer.json, or the folder of a run)",
        subject);
  if (fs::is_regular_file(subject, error)) return tokenizer_from_json(read_text_file(subject), subject);
  const fs::path kept = fs::path(subject) / "tokenizer.json";
  if (fs::is_regular_file(kept, error)) return tokenizer_from_json(read_text_file(kept), kept.string());
  LoadedRun run = training::load_run(subject);
  if (!run.tokenizer)
    fail<ValueError>("tokenizer show: {} was trained on the task {}, which has no text", subject,
                     run.config.data.name);
  return std::move(run.tokenizer);
}

// Returns the text of a token for people: in quotes, with control characters and invalid bytes as \xNN.
std::string quoted_text(std::string_view bytes) {
  std::string text = "'";
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char character = utf8_at(bytes, at);
    const auto length = static_cast<std::size_t>(std::max(character.bytes, 1));
    const bool plain = character.bytes > 0 &&
                       printable(bytes.substr(at, length)) == bytes.substr(at, length) &&
                       character.code_point >= 0x20;
    for (std::size_t i = 0; i < length; ++i)
      text += plain ? std::string(1, bytes[at + i])
                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[at + i]));
    at += length;
  }
  return text + "'";
}

// Prints the tokens of one text with their ids.
void show_text(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  Table table{{}, {}, "rl"};
  for (const std::int32_t id : ids)
    table.rows.push_back({std::to_string(id), quoted_text(tokenizer.decode_one(id))});
  print(to_text(table, 2));
  print_line("{} {}, {} {}; decoded it is {}", text.size(), plural(text.size(), "byte"), ids.size(),
             plural(ids.size(), "token"),
             tokenizer.decode(ids) == text ? "the same text" : quoted_text(tokenizer.decode(ids)));
}

// 0 where the system does not tell: then reading it says more.
std::int64_t size_of_file(const TextFile& file) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file.path, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

// Prints how texts are tokenized: the numbers to compare vocabularies by.
void show_data(const Tokenizer& tokenizer, const TokenizerFlags& flags) {
  const std::string& path = flags.show_data;
  std::int64_t words = 0;
  TokenCover cover;
  std::vector<std::int64_t> seen(static_cast<std::size_t>(tokenizer.vocab_size()));
  const TextFiles texts =
      list_text_files(local_data(path, std::cerr), document_unit(flags.cutting), reads_json(flags));
  std::int64_t bytes = 0, done = 0;
  for (const TextFile& file : single_files(texts.files)) bytes += size_of_file(file);
  if (const std::string text = long_encoding_text(tokenizer.name(), flags.subject, bytes); !text.empty())
    say("tokenizer show: " + text);
  {
    PercentLine line("tokenizer show");
    for (const TextFile& file : texts.files) {
      const std::string text = documents_of(file, cut_rule(flags.cutting)).text;
      words += count_words(text);
      for (const std::int32_t id : tokenizer.encode(text, cover)) ++seen[static_cast<std::size_t>(id)];
      for (const TextFile& part : single_files({file})) done += size_of_file(part);
      line(done, std::max(bytes, done));
    }
  }
  const auto tokens = static_cast<double>(std::max<std::int64_t>(cover.tokens, 1));
  print_line("{}: {} {}, {} {}, {} {}{}", path, cover.bytes, plural(cover.bytes, "byte"), words,
             plural(words, "word"), cover.tokens, plural(cover.tokens, "token"), describe_left_out(texts));
  print_line("bytes per token: {:.4f}", static_cast<double>(cover.bytes) / tokens);
  print_line("tokens per word: {:.4f}", tokens / static_cast<double>(std::max<std::int64_t>(words, 1)));
  print_line("unknown tokens: {}, bytes not kept: {}", cover.unknown, cover.lost_bytes);
  print_line("tokens that occur: {} of {}",
             std::count_if(seen.begin(), seen.end(), [](std::int64_t n) { return n > 0; }),
             tokenizer.vocab_size());
}

int run_show_tokenizer(const TokenizerFlags& flags) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer_of(flags.subject);
  print_line("{}: {} tokens", tokenizer->name(), tokenizer->vocab_size());
  std::vector<std::int32_t> by_length;
  std::string textless;
  std::int64_t textless_count = 0;
  for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (!tokenizer->decode_one(id).empty())
      by_length.push_back(id);
    else if (++textless_count <= 8)
      textless += fmt::format(" {}", id);
  }
  if (textless_count > 0) print_line("without text:{}{}", textless, textless_count > 8 ? " ..." : "");
  const std::size_t most = std::min<std::size_t>(by_length.size(), 20);
  std::stable_sort(by_length.begin(), by_length.end(), [&](std::int32_t a, std::int32_t b) {
    return tokenizer->decode_one(a).size() > tokenizer->decode_one(b).size();
  });
  std::string longest;
  for (std::size_t i = 0; i < most; ++i) longest += " " + quoted_text(tokenizer->decode_one(by_length[i]));
  print_line("longest:{}", longest);
  if (!flags.text.empty()) show_text(*tokenizer, flags.text);
  if (!flags.show_data.empty()) show_data(*tokenizer, flags);
  return 0;
}

void add_document_options(CLI::App& command, TokenizerFlags& flags) {
  add_option(
      command, "--document", flags.cutting.document,
      "What is one document of the folder, as data.document: a file, or a subfolder with all its files",
      CLI::IsMember(value_names<DocumentUnit>()));
  command
      .add_option("--separator", flags.cutting.separator,
                  "What stands between the documents of a file, as data.separator: it is not read")
      ->capture_default_str();
  command.add_option("--json-field", flags.cutting.json_field,
                     "Field of lines of JSON that holds the text, as data.json_field");
}

Described describe_train_tokenizer(CLI::App& command) {
  const auto flags = std::make_shared<TokenizerFlags>();
  command
      .add_option("--data", flags->data, "Text file or folder; of a folder with train and valid, only train")
      ->required();
  add_document_options(command, *flags);
  add_option(command, "--vocab", flags->options.size, "Number of tokens", whole_number(512, 1 << 20));
  add_option(command, "--type", flags->options.type, "bpe: merged pairs; unigram: most probable pieces",
             CLI::IsMember(value_names<VocabularyType>()));
  add_option(command, "--megabytes", flags->megabytes,
             "Train on at most so many megabytes: lines taken evenly from longer texts",
             whole_number(1, 1 << 20));
  command.add_option("--out", flags->out, "File to write: NAME.model")->required();
  return {[flags] { return run_train_tokenizer(*flags); }};
}

Described describe_show_tokenizer(CLI::App& command) {
  const auto flags = std::make_shared<TokenizerFlags>();
  command.add_option("FILE|RUN", flags->subject, "A .model file, or a run's folder")->required();
  command.add_option("--text", flags->text, "Split this text");
  command.add_option("--data", flags->show_data, "Count the tokens of this file or folder");
  add_document_options(command, *flags);
  return {[flags] { return run_show_tokenizer(*flags); }};
}

Described describe_tokenizer(CLI::App& command) {
  command.require_subcommand(1);
  return {nullptr,
          {{"train", "Make a vocabulary from texts", Computes::nothing, Results::printed,
            describe_train_tokenizer},
           {"show", "Show what a vocabulary holds, and how it splits texts", Computes::nothing,
            Results::printed, describe_show_tokenizer}}};
}

}  // namespace

Command commands::tokenizer() {
  return {"tokenizer", "Train or show a vocabulary of subwords (SentencePiece)", Computes::nothing,
          Results::printed, describe_tokenizer};
}

}  // namespace eddy::app
