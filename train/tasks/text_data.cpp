// Finding, reading, checking and tokenizing. Of a folder whose files stay separate, one at a time is in memory.
#include "train/tasks/text_data.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <ostream>
#include <set>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "train/files/sha256.h"
#include "train/files/text_file.h"
#include "train/page/human_text.h"
#include "train/text/dataset.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/text_files.h"
#include "train/text/unreadable.h"

namespace eddy {
namespace {

[[noreturn]] void fail_other_text(const TaskArguments& arguments, const std::string& name,
                                  const std::string& sha256) {
  fail<ConfigError>(
      "{}: {} is not the text that {} was trained on: SHA-256 {} and {} (name it by --data, or start a new run "
      "with --init-from)",
      arguments.training ? "train" : "eval", name, arguments.run, sha256, arguments.expected_sha256);
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

// The result of `action` on a file's text; its errors name the file.
template <class Action>
auto read_with(const TextFile& file, const Action& action) {
  const std::string text = text_of(file);
  try {
    return action(text);
  } catch (const FormatError& error) {
    fail<FormatError>("data: {}: {}", file.path, error.what());
  } catch (const ValueError& error) {
    fail<ValueError>("data: {}: {}", file.path, error.what());
  }
}

// A path as it is read: its files, and what they hold in all.
struct Reading {
  std::string path;
  bool separate = false;  // the files stay separate; else `text` has their joined text
  TextFiles files;
  std::int64_t train_parts = 0, valid_parts = 0;
  std::string test;  // the folder of the test split, if there is one
  std::string text, sha256;
  std::int64_t bytes = 0;
  std::string how;  // " (...)" where it is not as usual
};

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Takes out the files that a run was not trained on.
// errors: ConfigError when one of those that it was trained on is gone.
void keep_known(Reading& reading, const TaskArguments& arguments) {
  std::set<std::string> known(arguments.expected_files.begin(), arguments.expected_files.end());
  TextFiles& texts = reading.files;
  const std::int64_t train_parts = reading.train_parts;
  std::vector<TextFile> kept;
  for (std::int64_t i = 0; i < std::ssize(texts.files); ++i) {
    TextFile& file = texts.files[static_cast<std::size_t>(i)];
    if (known.erase(printable(file.name)) > 0) {
      kept.push_back(std::move(file));
      continue;
    }
    texts.left_out.insert(texts.left_out.begin(), {file.name, "new since the run began"});
    if (train_parts > 0) --(i < train_parts ? reading.train_parts : reading.valid_parts);
  }
  texts.files = std::move(kept);
  if (!known.empty())
    fail<ConfigError>(
        "{}: {} lacks {}, on which {} was trained (put it back, name the text by --data, or start a new "
        "run with --init-from)",
        arguments.training ? "train" : "eval", reading.path, *known.begin(), arguments.run);
}

// Adds what lies beside the splits of a folder to what is left out.
void add_beside(Reading& reading, const SplitFolder& splits) {
  std::error_code error;
  std::vector<LeftOut> beside;
  for (std::filesystem::directory_iterator entry(reading.path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (path != splits.train && path != splits.valid && path != splits.test)
      beside.push_back({entry->path().filename().string(), "beside train and valid"});
  }
  std::sort(beside.begin(), beside.end(), [](const LeftOut& a, const LeftOut& b) { return a.name < b.name; });
  reading.files.left_out.insert(reading.files.left_out.end(), beside.begin(), beside.end());
}

// errors: FormatError that names every file which cannot be read.
void check_readable(TextFiles& texts, bool needs_utf8) {
  std::vector<Unreadable> unreadable;
  texts.all_utf8 = true;
  for (const TextFile& file : texts.files) {
    const std::optional<Unreadable> why = why_unreadable(file, true);
    if (!why) continue;
    texts.all_utf8 = false;
    if (needs_utf8 || why_unreadable(file, false)) unreadable.push_back(*why);
  }
  if (!unreadable.empty()) fail_unreadable(unreadable, texts.files.size());
}

// The files that a run was trained on, all that are there, or those that an earlier version read.
enum class Way : std::uint8_t { known, all, as_before };

Reading read_path(const std::string& path, const TaskArguments& arguments, Way way) {
  const bool as_before = way == Way::as_before;
  Reading reading;
  reading.path = path;
  const std::string& order = arguments.config.data.order;
  const std::optional<SplitFolder> splits = find_splits(path);
  reading.separate = order == "documents" || splits || (order == "stream" && is_folder(path));
  const auto add = [&](const std::string& from, const std::string& prefix) {
    TextFiles found = as_before ? list_text_files_as_before(from, reading.separate) : list_text_files(from);
    for (TextFile& file : found.files) {
      file.name = prefix + file.name;
      reading.files.files.push_back(std::move(file));
    }
    for (LeftOut& file : found.left_out) reading.files.left_out.push_back({prefix + file.name, file.why});
    reading.files.folder = reading.files.folder || found.folder;
    return std::ssize(found.files);
  };
  if (splits) {
    reading.train_parts = add(splits->train, "train/");
    reading.valid_parts = add(splits->valid, "valid/");
    reading.test = splits->test;
    add_beside(reading, *splits);
  } else {
    add(path, "");
  }
  if (as_before) reading.how = " (as the earlier version read it that made the run)";
  if (way == Way::known) keep_known(reading, arguments);
  // A folder of one text is that text.
  const bool validates = arguments.config.train.eval_every > 0;
  if (!as_before && order == "stream" && !splits && validates && reading.files.files.size() == 1)
    reading.separate = false;
  check_readable(reading.files, arguments.config.data.tokenizer == "char");
  if (!reading.separate) {
    reading.text = text_of(reading.files);
    reading.bytes = std::ssize(reading.text);
    reading.sha256 = sha256_hex(reading.text);
    return reading;
  }
  Sha256 digest;
  for (const TextFile& file : reading.files.files) {
    const std::string text = text_of(file);
    reading.bytes += std::ssize(text);
    digest.update(fmt::format("{} {}\n", text.size(), file.name));
    digest.update(text);
  }
  reading.sha256 = digest.hex_digest();
  return reading;
}

// The text that config.data.path names or, for a run that goes on, the one of its digest: the files that it was
// trained on, wherever it finds them.
Reading find_reading(const TaskArguments& arguments) {
  const std::string& expected = arguments.expected_sha256;
  const std::vector<std::string> paths = data_paths(arguments);
  const std::filesystem::path first(paths.front());
  std::error_code error;
  if (!arguments.folders.empty() && first.is_relative() && !std::filesystem::exists(first, error))
    fail<IoError>("data: no such file or folder: '{}', neither here nor in {} (name it by --data)",
                  paths.front(), arguments.folders.front());
  std::vector<Way> ways;
  if (!arguments.expected_files.empty()) ways.push_back(Way::known);
  ways.push_back(Way::all);
  if (!expected.empty()) ways.push_back(Way::as_before);
  std::exception_ptr problem;  // the first; another place, or another way, may give the text
  for (const std::string& path : paths)
    for (const Way way : ways) {
      try {
        Reading reading = read_path(path, arguments, way);
        if (expected.empty() || reading.sha256 == expected) return reading;
        fail_other_text(arguments, path, reading.sha256);
      } catch (const Error&) {
        if (!problem) problem = std::current_exception();
      }
    }
  std::rethrow_exception(problem);
}

// Says how much of a text its vocabulary loses.
void warn_of_losses(const TextData& data, const std::string& vocabulary) {
  const TokenCover& cover = data.cover;
  if (cover.unknown == 0 && cover.lost_bytes == 0) return;
  const auto share = [](std::int64_t part, std::int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(all, 1));
  };
  add_warning(fmt::format(
      "warning: the vocabulary {} does not cover {}: {:.3g} % of its tokens are unknown, and {:.3g} % of its bytes "
      "are not kept: newlines, runs of spaces, and characters without a piece (eddy tokenizer train makes a "
      "vocabulary that keeps every text)",
      vocabulary, data.name, share(cover.unknown, cover.tokens), share(cover.lost_bytes, cover.bytes)));
}

// The error of one text that was joined from several, as that of the first file that has it: with its name, and
// the offset in it.
void name_the_file(const Reading& reading, const std::string& tokenizer_name, const Tokenizer* tokenizer) {
  for (const TextFile& file : reading.files.files)
    read_with(file, [&](const std::string& text) {
      static_cast<void>(tokenizer != nullptr ? tokenizer->encode(text)
                                             : make_tokenizer(tokenizer_name, text)->encode(text));
      return true;
    });
}

void encode_one_text(TextData& data, const std::string& text, TaskArguments& arguments,
                     const Reading* reading) {
  try {
    data.tokenizer = tokenizer_for(arguments, [&] { return std::string_view(text); });
    data.tokens = data.tokenizer->encode(text, data.cover);
  } catch (const Error&) {
    if (reading != nullptr) name_the_file(*reading, arguments.config.data.tokenizer, data.tokenizer.get());
    throw;
  }
  data.ends = {std::ssize(data.tokens)};
}

// Files of a stream that are too short for a segment are left out.
void encode_files(TextData& data, TaskArguments& arguments, Reading& reading) {
  data.train_parts = reading.train_parts;
  data.valid_parts = reading.valid_parts;
  const std::int64_t segment = arguments.config.data.order == "stream" ? segment_length(arguments.config) : 0;
  data.tokenizer = tokenizer_for(arguments, [&] {
    std::string all;
    if (arguments.config.data.tokenizer != "char") return all;  // only `char` needs the text
    all.reserve(static_cast<std::size_t>(reading.bytes));
    for (const TextFile& file : reading.files.files)
      all += read_with(file, [](const std::string& text) {
        static_cast<void>(make_tokenizer("char", text));  // an error names the file
        return text;
      });
    return all;
  });
  std::vector<TextFile> files = reading.files.files;
  if (!reading.test.empty() && !arguments.training)
    for (TextFile& file : list_text_files(reading.test).files)
      files.push_back({"test/" + file.name, file.path, file.encoding});
  std::vector<TextFile> long_enough;
  for (std::int64_t i = 0; i < std::ssize(files); ++i) {
    const TextFile& file = files[static_cast<std::size_t>(i)];
    const std::vector<std::int32_t> ids =
        read_with(file, [&](const std::string& text) { return data.tokenizer->encode(text, data.cover); });
    if (segment > 0 && std::ssize(ids) <= segment) {
      reading.files.left_out.push_back({file.name, fmt::format("{} tokens, and a segment of {} needs {}",
                                                               ids.size(), segment, segment + 1)});
      if (i < reading.train_parts)
        --data.train_parts;
      else if (i < reading.train_parts + reading.valid_parts)
        --data.valid_parts;
      continue;
    }
    if (i < std::ssize(reading.files.files)) long_enough.push_back(file);
    data.tokens.insert(data.tokens.end(), ids.begin(), ids.end());
    data.ends.push_back(std::ssize(data.tokens));
    data.files.push_back(file.name);
  }
  reading.files.files = std::move(long_enough);
  const bool lacks_a_split = reading.train_parts > 0 &&
                             (data.train_parts == 0 || (data.valid_parts == 0 && reading.valid_parts > 0));
  if (data.files.empty() || lacks_a_split)
    fail<ValueError>(
        "data: {} in {} is longer than a segment of {} tokens (a shorter train.sequence, or data.order "
        "windows, which joins them)",
        lacks_a_split ? "no text of a split" : "no text", reading.path, segment);
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
  if (config.order == "documents" && config.path.empty())
    fail<ConfigError>("config: data.order is documents and data.path is empty (name a folder of texts)");
  TextData data;
  if (config.path.empty()) {
    const TextSource source = resolve_text(messages, standard_places(), arguments.expected_sha256);
    data.name = source.name;
    data.sha256 = sha256_hex(source.text);
    if (!arguments.expected_sha256.empty() && arguments.expected_sha256 != data.sha256)
      fail_other_text(arguments, data.name, data.sha256);
    encode_one_text(data, source.text, arguments, nullptr);
  } else {
    Reading reading = find_reading(arguments);
    if (reading.train_parts > 0 && arguments.training && config.test > 0)
      fail<ConfigError>("config: data.test is {} and {} brings its own splits (leave it out)", config.test,
                        reading.path);
    data.name = printable(reading.path);
    data.sha256 = reading.sha256;
    if (reading.files.folder)
      for (const TextFile& file : reading.files.files) data.source_files.push_back(printable(file.name));
    if (reading.separate)
      encode_files(data, arguments, reading);
    else
      encode_one_text(data, reading.text, arguments, &reading);
    messages << "data: " << data.name << (reading.files.folder ? ", " : " ")
             << describe_read(reading.files, reading.bytes) << describe_left_out(reading.files) << reading.how
             << '\n';
  }
  warn_of_losses(data, config.tokenizer);
  return data;
}

}  // namespace eddy
