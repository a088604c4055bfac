// Two passes over the files: one counts characters, one feeds lines to the library.
#include "train/text/vocabulary_training.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

constexpr std::size_t kCodePoints = 0x110000;
constexpr std::size_t kLongestSentence = 4096;  // bytes; the library takes up to twice as many
constexpr std::int64_t kReserved = 259;         // <unk>, <s>, </s>, and the bytes
// A fixed number, because the result depends on it: the unigram model sums in the order of the threads.
constexpr const char* kThreads = "4";

// Characters that the library reserves: NUL and the tab as boundaries, U+2581 for spaces, U+2585 for
// unknowns.
bool is_reserved(char32_t c) {
  return c == 0 || c == U'\t' || c == U'\u2581' || c == U'\u2585';
}

struct Counts {
  std::vector<std::int64_t> count = std::vector<std::int64_t>(kCodePoints);  // by code point
  std::int64_t bytes = 0;
  bool separator = false, json_lines = false;  // whether a file has what the rule cuts at
};

Counts count_characters(const std::vector<TextFile>& files, const CutRule& cut) {
  Counts counts;
  for (const TextFile& file : files) {
    std::string read = text_of(file);
    counts.separator = counts.separator || read.find(cut.separator) != std::string::npos;
    counts.json_lines = counts.json_lines || is_json_lines(read, file.name);
    const CutRule rule = file.joined.empty() ? cut : CutRule{};
    const std::string text = documents_in(std::move(read), rule, shown_path(file), true).text;
    counts.bytes += std::ssize(text);
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char character = utf8_at(text, at);
      if (character.bytes > 0) ++counts.count[character.code_point];
      at += static_cast<std::size_t>(std::max(character.bytes, 1));
    }
  }
  return counts;
}

// Which characters get a piece. Sets result.characters and result.without_piece.
std::vector<bool> kept_characters(const Counts& counts, std::int64_t room, TrainedVocabulary& result) {
  std::vector<char32_t> found;
  for (std::size_t c = 0; c < kCodePoints; ++c)
    if (counts.count[c] > 0) found.push_back(static_cast<char32_t>(c));
  result.characters = std::ssize(found);
  std::erase_if(found, [](char32_t c) { return is_reserved(c) || c == U' '; });
  if (std::ssize(found) > room) {
    // The most frequent first; of equally frequent ones the lower.
    std::stable_sort(found.begin(), found.end(),
                     [&](char32_t a, char32_t b) { return counts.count[a] > counts.count[b]; });
    found.resize(static_cast<std::size_t>(room));
  }
  std::vector<bool> kept(kCodePoints);
  for (const char32_t c : found) kept[c] = true;
  kept[U' '] = true;
  result.without_piece = result.characters - std::ssize(found) - (counts.count[U' '] > 0 ? 1 : 0);
  return kept;
}

// Lines of the files, cut at characters without a piece. One file at a time is in memory.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::vector<TextFile>& files, const CutRule& cut, const std::vector<bool>& kept, double share)
      : files_(files), cut_(cut), kept_(kept), share_(share) {
    Next();
  }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  // The library's releases name the type differently.
  decltype(std::declval<SentenceIterator>().status()) status() const override { return {}; }
  std::int64_t bytes() const { return bytes_; }

  void Next() override {
    while (take()) {
      // Every line adds its share to due_; a line is taken when due_ covers its length.
      due_ += share_ * static_cast<double>(line_.size());
      if (share_ < 1 && due_ < static_cast<double>(line_.size())) continue;
      due_ -= static_cast<double>(line_.size());
      bytes_ += std::ssize(line_);
      return;
    }
    done_ = true;
  }

 private:
  // Puts the next stretch of kept characters into line_. Returns false at the end of the files.
  bool take() {
    for (;;) {
      if (at_ >= text_.size()) {
        if (file_ == files_.size()) return false;
        text_ = documents_of(files_[file_++], cut_, true).text;
        at_ = line_end_ = 0;
        continue;
      }
      const std::string_view text = text_;
      if (at_ >= line_end_) line_end_ = find_line_end(text, at_, kLongestSentence);
      const std::size_t begin = at_;
      while (at_ < line_end_) {
        const Utf8Char character = utf8_at(text, at_);
        if (character.bytes == 0 || !kept_[character.code_point]) break;
        at_ += static_cast<std::size_t>(character.bytes);
      }
      const std::size_t end = at_;
      if (at_ < line_end_) at_ += static_cast<std::size_t>(std::max(utf8_at(text, at_).bytes, 1));
      if (end == begin) continue;
      line_.assign(text.substr(begin, end - begin));
      return true;
    }
  }

  const std::vector<TextFile>& files_;
  const CutRule& cut_;
  const std::vector<bool>& kept_;
  double share_, due_ = 0;
  std::size_t file_ = 0, at_ = 0, line_end_ = 0;
  std::string text_;  // of the file before file_
  std::string line_;
  std::int64_t bytes_ = 0;
  bool done_ = false;
};

// Turns the library's error about a vocabulary size that is too large into one that names the largest
// possible.
[[noreturn]] void refuse(const std::string& complaint, const VocabularyOptions& options) {
  const std::string mark = "to a value <= ";
  const std::size_t at = complaint.find(mark);
  if (complaint.find("Vocabulary size too high") != std::string::npos && at != std::string::npos) {
    std::string most = complaint.substr(at + mark.size());
    while (!most.empty() && (most.back() < '0' || most.back() > '9')) most.pop_back();
    const bool possible = most.size() > 3 || (most.size() == 3 && most >= "512");
    fail<ValueError>(
        "tokenizer train: the text gives no {} vocabulary of {} tokens, only one of {} ({}take more text)",
        options.type, options.size, most, possible ? "set --vocab to it or less, or " : "");
  }
  fail<ValueError>(
      "tokenizer train: the text gives no {} vocabulary of {} tokens (take more text, or another --type)",
      options.type, options.size);
}

}  // namespace

TextFiles vocabulary_files(const std::string& path, DocumentUnit unit, bool json_lines) {
  const std::optional<SplitFolder> splits = find_splits(path);
  return list_text_files(splits ? splits->train : path, unit, json_lines);
}

TrainedVocabulary train_vocabulary(const std::vector<TextFile>& files, const VocabularyOptions& options) {
  if (options.size < 512 || options.size > (std::int64_t{1} << 20))
    fail<ValueError>("tokenizer train: a vocabulary of {} tokens (512 to {})", options.size,
                     std::int64_t{1} << 20);
  if (!value_named<VocabularyType>(options.type))
    fail<ValueError>("tokenizer train: the type is \"{}\" ({})", options.type,
                     value_choice<VocabularyType>());
  if (options.most_bytes < 1)
    fail<ValueError>("tokenizer train: {} bytes of text (at least 1)", options.most_bytes);
  TrainedVocabulary result;
  const Counts counts = count_characters(files, options.cut);
  result.bytes = counts.bytes;
  if (!counts.separator && options.cut.separator != kEndOfText)
    fail<ConfigError>("tokenizer train: the separator is {}, which does not occur in the text (leave it out)",
                      quote_text(options.cut.separator));
  if (!counts.json_lines && !options.cut.json_field.empty())
    fail<ConfigError>("tokenizer train: the field is {}, and the text has no lines of JSON (leave it out)",
                      quote_text(options.cut.json_field));
  if (counts.json_lines && options.cut.json_field.empty())
    add_warning(
        "warning: the text has lines of JSON and is read as it stands, with its braces and keys (--json-field NAME "
        "reads that field of each line)");
  const std::vector<bool> kept = kept_characters(counts, (options.size - kReserved) / 2, result);
  const double share = static_cast<double>(options.most_bytes) /
                       static_cast<double>(std::max(counts.bytes, options.most_bytes));
  Lines lines(files, options.cut, kept, share);
  if (lines.done())
    fail<ValueError>("tokenizer train: {} bytes of text hold no line to learn from (take more text)",
                     counts.bytes);
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.size)},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"character_coverage", "1.0"},
      {"max_sentence_length", std::to_string(2 * kLongestSentence)},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      {"num_threads", kThreads},
      {"minloglevel", "2"},
  };
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &result.model);
  if (!status.ok()) refuse(status.ToString(), options);
  result.used_bytes = lines.bytes();
  return result;
}

}  // namespace eddy::training
