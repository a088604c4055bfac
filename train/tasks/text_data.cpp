// Reading, checking and tokenizing. Files of a folder are mapped one at a time: there may be more of them
// than a process may map.
#include "train/tasks/text_data.h"

#include <filesystem>
#include <ostream>

#include "tensor/base/format.h"
#include "train/files/sha256.h"
#include "train/files/text_file.h"
#include "train/page/human_text.h"
#include "train/text/corpus.h"
#include "train/text/dataset.h"
#include "train/text/sentencepiece_tokenizer.h"

namespace eddy {
namespace {

void check_same_data(const TextData& data, const TaskArguments& arguments) {
  if (!arguments.expected_sha256.empty() && arguments.expected_sha256 != data.sha256)
    fail<ConfigError>(
        "{}: {} is not the text that {} was trained on: SHA-256 {} and {} (name it by --data, or start a new "
        "run with --init-from)",
        arguments.training ? "train" : "eval", data.name, arguments.run, data.sha256,
        arguments.expected_sha256);
}

// `text` is called only for a vocabulary that is made from it.
template <class MakeText>
std::unique_ptr<Tokenizer> tokenizer_for(TaskArguments& arguments, const MakeText& text) {
  const std::string& name = arguments.config.data.tokenizer;
  if (!arguments.tokenizer) return make_tokenizer(name, text());
  std::unique_ptr<Tokenizer> tokenizer = std::move(arguments.tokenizer);
  const bool from_file = is_sentencepiece_path(name);
  if (tokenizer->name() != (from_file ? kSentencePiece : name))
    fail<ConfigError>(
        "train: data.tokenizer is {} and that of {} is {} (its parameters fit its own tokens alone)", name,
        arguments.run, tokenizer->name());
  // A run keeps its vocabulary, so the file may be gone. When it exists and training continues with it,
  // it must be the same.
  std::error_code unreadable;
  if (from_file && arguments.training && std::filesystem::is_regular_file(name, unreadable) &&
      read_text_file(name) != tokenizer->model_file())
    fail<ConfigError>(
        "train: data.tokenizer is {}, which is another vocabulary than that of {} (its parameters fit its "
        "own tokens alone: set data.tokenizer to the tokenizer.model in its run's folder)",
        name, arguments.run);
  return tokenizer;
}

// The result of `action` on a file's bytes; its errors name the file.
template <class Action>
auto read_with(const TextFile& file, const Action& action) {
  const MappedFile mapped(file.path);
  try {
    return action(mapped.bytes());
  } catch (const FormatError& error) {
    fail<FormatError>("data: {}: {}", file.path, error.what());
  } catch (const ValueError& error) {
    fail<ValueError>("data: {}: {}", file.path, error.what());
  }
}

// For a file, or a folder that was read as one text, that the tokenizer rejects: throws the error of the first
// rejected file, with the file's name and the offset in it. `tokenizer` is null when the
// vocabulary could not be made either.
void name_the_file(const DataConfig& config, const Tokenizer* tokenizer) {
  if (config.path.empty()) return;  // a text of Eddy's own
  for (const TextFile& file : list_text_files(config.path, false).files)
    read_with(file, [&](std::string_view text) {
      if (tokenizer != nullptr)
        static_cast<void>(tokenizer->encode(text));
      else
        static_cast<void>(make_tokenizer(config.tokenizer, text));
      return true;
    });
}

TextData read_one_text(TaskArguments& arguments, std::ostream& messages) {
  const TextSource source =
      resolve_text(arguments.config.data.path, messages, standard_places(), arguments.expected_sha256);
  const std::string_view text = source.text.view();
  TextData data;
  data.name = source.name;
  data.sha256 = sha256_hex(text);
  check_same_data(data, arguments);
  try {
    data.tokenizer = tokenizer_for(arguments, [&] { return text; });
    data.tokens = data.tokenizer->encode(text);
  } catch (const Error&) {
    name_the_file(arguments.config.data, data.tokenizer.get());
    throw;
  }
  data.ends = {std::ssize(data.tokens)};
  return data;
}

TextData read_files(TaskArguments& arguments, std::ostream& messages) {
  TextData data;
  data.name = arguments.config.data.path;
  std::vector<TextFile> files;
  std::int64_t empty = 0;
  const auto add = [&](const std::string& folder, const std::string& prefix) {
    const TextFiles found = list_text_files(folder);
    for (const TextFile& file : found.files) files.push_back({prefix + file.name, file.path});
    empty += found.empty;
    return std::ssize(found.files);
  };
  const std::optional<SplitFolder> splits = find_splits(data.name);
  if (splits && arguments.training && arguments.config.data.test > 0)
    fail<ConfigError>("config: data.test is {} and {} brings its own splits (leave it out)",
                      arguments.config.data.test, data.name);
  if (splits) {
    data.train_parts = add(splits->train, "train/");
    data.valid_parts = add(splits->valid, "valid/");
  } else {
    add(data.name, "");
  }
  Sha256 digest;
  std::int64_t bytes = 0;
  for (const TextFile& file : files) {
    const MappedFile mapped(file.path);
    bytes += std::ssize(mapped.bytes());
    digest.update(fmt::format("{} {}\n", mapped.bytes().size(), file.name));
    digest.update(mapped.bytes());
  }
  data.sha256 = digest.hex_digest();
  messages << "data: " << data.name << ", " << files.size() << " files, " << bytes << " bytes (--data.path)";
  if (empty > 0) messages << "; empty files left out: " << empty;
  messages << '\n';
  check_same_data(data, arguments);
  data.tokenizer = tokenizer_for(arguments, [&] {
    std::string all;
    if (arguments.config.data.tokenizer != "char") return all;  // only `char` needs the text
    all.reserve(static_cast<std::size_t>(bytes));
    for (const TextFile& file : files)
      all += read_with(file, [](std::string_view text) {
        static_cast<void>(make_tokenizer("char", text));  // an error names the file
        return std::string(text);
      });
    return all;
  });
  if (splits && !splits->test.empty() && !arguments.training) add(splits->test, "test/");
  for (const TextFile& file : files) {
    const std::vector<std::int32_t> ids =
        read_with(file, [&](std::string_view text) { return data.tokenizer->encode(text); });
    data.tokens.insert(data.tokens.end(), ids.begin(), ids.end());
    data.ends.push_back(std::ssize(data.tokens));
    data.files.push_back(file.name);
  }
  return data;
}

}  // namespace

std::span<const std::int32_t> TextData::part(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  const std::int64_t begin = at == 0 ? 0 : ends[at - 1];
  return std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(ends[at] - begin));
}

TextData read_text_data(TaskArguments& arguments) {
  std::ostream nowhere(nullptr);  // without a buffer it discards everything
  PrintableBuffer safe(arguments.messages != nullptr ? *arguments.messages : nowhere);
  std::ostream messages(&safe);  // names of files may hold anything
  const DataConfig& config = arguments.config.data;
  std::error_code error;
  if (config.order == "documents" && config.path.empty())
    fail<ConfigError>("config: data.order is documents and data.path is empty (name a folder of texts)");
  const bool separate_files = config.order == "documents" || find_splits(config.path).has_value() ||
                              (config.order == "stream" && std::filesystem::is_directory(config.path, error));
  return separate_files ? read_files(arguments, messages) : read_one_text(arguments, messages);
}

}  // namespace eddy
