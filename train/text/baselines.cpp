// Counts of letters and pairs, and two processes of xz side by side.
#include "train/text/baselines.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <unordered_map>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/system/files.h"
#include "train/process/running_program.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

using LetterRow = std::vector<char32_t>;

LetterRow letters_of(std::string_view text) {
  constexpr char32_t kNoUtf8 = 0x110000;  // behind the last code point
  LetterRow letters;
  letters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_at(text, at);
    letters.push_back(character.bytes > 0 ? character.code_point
                                          : kNoUtf8 + static_cast<unsigned char>(text[at]));
    at += static_cast<std::size_t>(std::max(1, static_cast<int>(character.bytes)));
  }
  return letters;
}

std::int64_t alphabet_of(const LetterRow& a, const LetterRow& b) {
  LetterRow all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end());
  return std::unique(all.begin(), all.end()) - all.begin();
}

// What a text says about its next letter.
class LetterModel {
 public:
  LetterModel(const LetterRow& text, std::int64_t alphabet)
      : alphabet_(static_cast<double>(alphabet)), count_(static_cast<double>(text.size())) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      ++letters_[text[i]].count;
      if (i > 0 && ++pairs_[pair_of(text[i - 1], text[i])] == 1) ++letters_[text[i - 1]].followers;
    }
    if (!text.empty()) last_ = text.back();
  }

  double letter(char32_t x) const {
    const auto distinct = static_cast<double>(letters_.size());
    const auto found = letters_.find(x);
    const double count = found == letters_.end() ? 0 : found->second.count;
    return (count + distinct / alphabet_) / (count_ + distinct);
  }
  double after(char32_t a, char32_t x) const {
    const auto before = letters_.find(a);
    if (before == letters_.end() || before->second.followers == 0) return letter(x);
    const auto pair = pairs_.find(pair_of(a, x));
    const double count = pair == pairs_.end() ? 0 : pair->second;
    // The last letter of the text has been followed once less than it occurs.
    const double followed = before->second.count - (a == last_ ? 1 : 0);
    return (count + before->second.followers * letter(x)) / (followed + before->second.followers);
  }

 private:
  struct Letter {
    double count = 0, followers = 0;
  };
  static std::uint64_t pair_of(char32_t a, char32_t x) { return (static_cast<std::uint64_t>(a) << 32) | x; }

  double alphabet_, count_;
  std::unordered_map<char32_t, Letter> letters_;
  std::unordered_map<std::uint64_t, double> pairs_;
  char32_t last_ = 0;
};

// A process of xz that compresses texts, one behind the other. Neither file has a name, so nothing is left behind.
class Compression {
 public:
  Compression(const std::string& program, const std::vector<std::string_view>& texts)
      : input_(unnamed_file("text")), output_(unnamed_file("xz")) {
    if (input_.get() < 0 || output_.get() < 0 || !write_all(texts)) {
      no_room_ = fmt::format("no room for its input: {}", std::strerror(errno));
      return;
    }
    std::vector<std::string> variables{"LC_ALL=C"};
    // Not XZ_OPT and the like, which would change the result.
    for (const char* name : {"PATH", "LD_LIBRARY_PATH"})
      if (const char* value = std::getenv(name); value != nullptr)
        variables.push_back(std::string(name) + "=" + value);
    process_.emplace(ProgramStart{.words = {program, "-6", "--threads=1", "--stdout"},
                                  .input = input_.get(),
                                  .output = output_.get(),
                                  .environment = std::move(variables)});
  }

  bool ended() { return !process_ || process_->wait(0); }
  // Why there is no result, once it has ended; empty if there is one.
  std::string why() const { return process_ ? process_->end().why("it") : no_room_; }
  std::int64_t bytes() const {
    struct stat status {};
    return ::fstat(output_.get(), &status) == 0 ? status.st_size : 0;
  }

 private:
  bool write_all(const std::vector<std::string_view>& texts) const {
    for (std::string_view rest : texts)
      while (!rest.empty()) {
        const ssize_t written = ::write(input_.get(), rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        rest.remove_prefix(static_cast<std::size_t>(written));
      }
    return ::lseek(input_.get(), 0, SEEK_SET) == 0;
  }

  Descriptor input_, output_;
  std::string no_room_;  // for its input
  std::optional<RunningProgram> process_;
};

void add_xz(Baselines& result, std::string_view training, std::string_view validation,
            const BaselineOptions& options) {
  Compression both(options.compressor, {training, validation});
  Compression alone(options.compressor, {training});
  // Both are waited for in each round, so that none keeps the other from ending.
  for (bool first = both.ended(), second = alone.ended(); !first || !second;
       first = both.ended(), second = alone.ended()) {
    if (options.stop && options.stop()) {
      result.no_xz = "there was no time for it";
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.no_xz = both.why().empty() ? alone.why() : both.why();
  if (result.no_xz.empty())
    result.xz =
        8 * static_cast<double>(both.bytes() - alone.bytes()) / static_cast<double>(validation.size());
}

}  // namespace

std::vector<std::pair<std::string, double>> Baselines::listed() const {
  std::vector<std::pair<std::string, double>> all{
      {"uniform letters", uniform}, {"letter frequencies", letters}, {"bigrams", bigrams}, {"xz", xz}};
  std::erase_if(all, [](const auto& one) { return !std::isfinite(one.second); });
  return all;
}

std::string Baselines::samples() const {
  return fmt::format("fitted on {}{} of the training text, measured on {}{} of the validation text",
                     training_is_part ? "" : "all ", decimal_bytes(training_bytes),
                     validation_is_part ? "" : "all ", decimal_bytes(validation_bytes));
}

std::string Baselines::summary() const {
  std::string text;
  for (const auto& [name, value] : listed())
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name, value);
  if (!no_xz.empty()) text += fmt::format(", xz not measured ({})", no_xz);
  return text;
}

std::string Baselines::place_of(double bits_per_byte) const {
  std::pair<std::string, double> beaten{"", INFINITY}, ahead{"", -INFINITY};
  for (const auto& one : listed()) {
    if (bits_per_byte < one.second && one.second < beaten.second) beaten = one;
    if (bits_per_byte >= one.second && one.second > ahead.second) ahead = one;
  }
  std::string text;
  if (!beaten.first.empty()) text = fmt::format("better than {} {:.2f}", beaten.first, beaten.second);
  if (!ahead.first.empty())
    text += fmt::format("{}not better than {} {:.2f}", text.empty() ? "" : ", ", ahead.first, ahead.second);
  return text;
}

Baselines measure_baselines(std::string_view training, std::string_view validation,
                            const BaselineOptions& options) {
  if (training.empty() || validation.empty())
    fail<ValueError>("baselines: {} bytes of training and {} of validation text (each needs one)",
                     training.size(), validation.size());
  const LetterRow fitted = letters_of(training), measured = letters_of(validation);
  Baselines result;
  result.alphabet = options.alphabet > 0 ? options.alphabet : alphabet_of(fitted, measured);
  result.training_bytes = std::ssize(training);
  result.validation_bytes = std::ssize(validation);
  const LetterModel model(fitted, result.alphabet);
  const auto bytes = static_cast<double>(validation.size());
  double letters = 0, bigrams = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    letters -= std::log2(model.letter(measured[i]));
    bigrams -= std::log2(i == 0 ? model.letter(measured[i]) : model.after(measured[i - 1], measured[i]));
  }
  result.uniform =
      std::log2(static_cast<double>(result.alphabet)) * static_cast<double>(measured.size()) / bytes;
  result.letters = letters / bytes;
  result.bigrams = bigrams / bytes;
  add_xz(result, training, validation, options);
  return result;
}

TextSample sample_of(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens, std::int64_t bytes) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 14;
  std::vector<std::int64_t> lengths;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    lengths.push_back(std::ssize(tokenizer.decode_one(id)));
  const auto length_of = [&](std::int32_t id) { return lengths[static_cast<std::size_t>(id)]; };
  std::int64_t all = 0;
  for (const std::int32_t id : tokens) all += length_of(id);
  if (all <= bytes) return {tokenizer.decode(tokens), false};

  TextSample sample{.text = {}, .is_part = true};
  const std::int64_t pieces = std::max<std::int64_t>(1, bytes / kPiece), most = bytes / pieces;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const auto begin = static_cast<std::size_t>(i * std::ssize(tokens) / pieces);
    const auto next = static_cast<std::size_t>((i + 1) * std::ssize(tokens) / pieces);
    std::size_t end = begin;
    for (std::int64_t length = 0; end < next; ++end)
      if ((length += length_of(tokens[end])) > most) break;
    const std::string piece = tokenizer.decode(tokens.subspan(begin, end - begin));
    std::string_view text = piece;
    // A byte vocabulary may cut a character at either end.
    for (int cut = 0; cut < 3 && !text.empty() && is_continuation(text.front()); ++cut) text.remove_prefix(1);
    std::size_t last = text.size();
    while (last > 0 && text.size() - last < 3 && is_continuation(text[last - 1])) --last;
    if (last > 0 && utf8_at(text, last - 1).bytes == 0) text = text.substr(0, last - 1);
    sample.text += text;
  }
  return sample;
}

nlohmann::json to_json(const Baselines& b) {
  return {{"uniform", b.uniform},
          {"letters", b.letters},
          {"bigrams", b.bigrams},
          {"xz", b.xz},
          {"no_xz", b.no_xz},
          {"alphabet", b.alphabet},
          {"training_bytes", b.training_bytes},
          {"validation_bytes", b.validation_bytes},
          {"training_is_part", b.training_is_part},
          {"validation_is_part", b.validation_is_part}};
}

Baselines baselines_from_json(const nlohmann::json& value) {
  Baselines b;
  for (auto [key, number] :
       {std::pair{"uniform", &b.uniform}, {"letters", &b.letters}, {"bigrams", &b.bigrams}, {"xz", &b.xz}})
    if (!value.at(key).is_null()) *number = value.at(key).get<double>();
  b.no_xz = value.at("no_xz").get<std::string>();
  b.alphabet = value.at("alphabet").get<std::int64_t>();
  b.training_bytes = value.at("training_bytes").get<std::int64_t>();
  b.validation_bytes = value.at("validation_bytes").get<std::int64_t>();
  b.training_is_part = value.at("training_is_part").get<bool>();
  b.validation_is_part = value.at("validation_is_part").get<bool>();
  return b;
}

}  // namespace eddy::training
