// Writing the text of a table; choosing the documents of a vocabulary, and knowing whether it is theirs.
#include "train/app/reproduce/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "train/files/sha256.h"
#include "train/files/text_file.h"
#include "train/text/corpus.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/stories/stories.h"
#include "train/text/text_files.h"
#include "train/text/vocabulary_training.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kStorySeed = 1;
constexpr std::int64_t kDocuments = 8;

// Refuses to overwrite a text that runs were trained on with another one.
void write_once(const fs::path& file, const std::string& text) {
  std::error_code error;
  if (fs::exists(file, error)) {
    if (read_text_file(file) == text) return;
    fail<ConfigError>("reproduce: {} was made from other stories than there are now (choose another --runs)",
                      file.string());
  }
  fs::create_directories(file.parent_path(), error);
  if (error) fail<IoError>("reproduce: {} cannot be made: {}", file.parent_path().string(), error.message());
  replace_text_file(file, text);
}

std::vector<TextFile> training_documents(const DataConfig& data) {
  const std::string path = data.path.text();  // a table reads one
  const bool splits = find_splits(path).has_value();
  std::vector<TextFile> files = vocabulary_files(path, document_unit(data)).files;
  const auto all = std::ssize(files);
  if (splits || all == 1) return files;
  const std::int64_t part = part_of(data.split, all);
  files.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(part, 1, all)));
  return files;
}

// Writes the lines of a text's one file that are trained on to `part`, and returns that.
std::vector<TextFile> training_part(const DataConfig& data, const TextFile& file, const fs::path& part) {
  std::string text = read_text(file.path);
  const auto end = static_cast<std::size_t>(data.split * static_cast<double>(text.size()));
  if (const std::size_t line = text.rfind('\n', end); end < text.size() && line != std::string::npos)
    text.resize(line + 1);
  replace_text_file(part, text);
  return {{part.filename().string(), part.string()}};
}

// What tells one set of documents from another without reading them.
std::string digest_of(const std::vector<TextFile>& files) {
  std::string names;
  for (const TextFile& file : single_files(files))
    names += fmt::format("{} {}\n", fs::file_size(file.path), file.name);
  return sha256_hex(names);
}

}  // namespace

fs::path text_path(const ReproduceTable& table, const fs::path& folder) {
  const char* name = table.text.kind == TextKind::documents ? "books"
                     : table.text.kind == TextKind::file    ? "text.txt"
                                                            : "stories.txt";
  return folder / "text" / name;
}

void prepare_text(const ReproduceTable& table, const fs::path& folder,
                  const std::function<void(std::string_view)>& log) {
  const ReproduceText& plan = table.text;
  if (!plan.kind) return;
  const std::int64_t bytes = plan.generated_bytes;
  if (plan.kind == TextKind::documents) {
    const std::string all = generate_stories(kStorySeed, bytes);
    const auto part = static_cast<std::size_t>(bytes / kDocuments);
    for (std::size_t i = 0; i < static_cast<std::size_t>(kDocuments); ++i)
      write_once(text_path(table, folder) / fmt::format("book-{}.txt", i), all.substr(i * part, part));
    log(fmt::format("data: {} documents of stories written by Eddy, {} bytes\n", kDocuments, bytes));
    return;
  }
  if (plan.kind == TextKind::file) {
    const InputFile file(plan.source);
    write_once(text_path(table, folder),
               std::string(file.text().substr(0, static_cast<std::size_t>(plan.source_bytes))));
    log(fmt::format("data: the first {} bytes of {}\n", plan.source_bytes, plan.source));
    return;
  }
  const bool given = !plan.source.empty();
  std::string source_text = given ? read_text(plan.source) : generate_stories(kStorySeed, bytes);
  if (given && plan.source_bytes > 0 && plan.source_bytes < std::ssize(source_text))
    source_text.resize(static_cast<std::size_t>(plan.source_bytes));
  const std::vector<std::string> stories = split_stories(source_text);
  const std::size_t story_count = stories.size();
  if (story_count < 2)
    fail<ValueError>(
        "reproduce: {} has {} {} (at least 2, with <|endoftext|> or blank lines between them: told as "
        "one story, a text repeats nothing within reach)",
        plan.source, story_count, plural(story_count, "story", "stories"));
  const bool repeat = plan.kind == TextKind::repeat;
  const bool cut = repeat && plan.most_bytes > 0;
  const std::vector<std::string> told = cut ? cut_stories(stories, plan.most_bytes) : stories;
  const std::string text = repeat ? repeat_text(told) : plain_text(told);
  write_once(text_path(table, folder), text);
  const std::string from = given ? plan.source : std::string("Eddy's own generator");
  const std::string parts = cut ? fmt::format(" in {} pieces", told.size()) : "";
  const std::string pieces = parts + (repeat ? ", each told twice" : "");
  log(fmt::format("data: {} stories from {}{}: {} bytes\n", story_count, from, pieces, text.size()));
}

std::string vocabulary_path(const fs::path& folder, std::int64_t pieces) {
  return (folder / "text" / fmt::format("pieces-{}.model", pieces)).string();
}

RunConfig without_vocabulary(const ReproduceRow& row, const fs::path& folder) {
  RunConfig config = row.config;
  std::error_code error;
  if (row.pieces == 0 || config.data.tokenizer != vocabulary_path(folder, row.pieces) ||
      fs::exists(config.data.tokenizer, error))
    return config;
  config.data.tokenizer = kByte260Tokenizer;
  config.model.vocab = config.model.n_out = 0;
  return config;
}

std::string missing_vocabulary(const ReproduceRow& row, const fs::path& folder) {
  const std::string tokenizer = without_vocabulary(row, folder).data.tokenizer;
  std::error_code error;
  return is_sentencepiece_path(tokenizer) && !fs::exists(tokenizer, error) ? tokenizer : "";
}

void prepare_vocabulary(const ReproduceRow& row, const fs::path& folder,
                        const std::function<void(std::string_view)>& log) {
  const fs::path model = row.config.data.tokenizer;
  if (row.pieces == 0 || model != vocabulary_path(folder, row.pieces)) return;  // --set gave another
  const std::vector<TextFile> files = training_documents(row.config.data);
  const std::string digest = digest_of(files);
  const fs::path about = fs::path(model).replace_extension(".documents");
  std::error_code error;
  if (fs::exists(model, error) && fs::exists(about, error)) {
    if (read_text_file(about) == digest + "\n") return;
    fail<ConfigError>(
        "reproduce: {} was made from other documents than there are now (choose another --runs)",
        model.string());
  }
  log(fmt::format("vocabulary: {} pieces from {} {}\n", row.pieces, files.size(),
                  plural(files.size(), "document")));
  fs::create_directories(model.parent_path(), error);
  if (error) fail<IoError>("reproduce: {} cannot be made: {}", model.parent_path().string(), error.message());
  const fs::path part = fs::path(model).replace_extension(".txt");
  const std::string made = [&] {
    try {
      const bool one_file = fs::is_regular_file(row.config.data.path.text(), error);
      const std::vector<TextFile> read = one_file ? training_part(row.config.data, files.at(0), part) : files;
      const TrainedVocabulary vocabulary =
          train_vocabulary(read, {.size = row.pieces, .cut = cut_rule(row.config.data)});
      fs::remove(part, error);
      return vocabulary.model;
    } catch (const ValueError& refused) {
      fail<ValueError>(
          "reproduce: the row {} needs a vocabulary of {} pieces: {} (or take one that there is: "
          "--set data.tokenizer=FILE.model)",
          row.name, row.pieces, refused.what());
    }
  }();
  replace_text_file(model, made);
  replace_text_file(about, digest + "\n");
}

}  // namespace eddy::app
