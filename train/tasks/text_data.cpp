// Tokenizing what was read.
#include "train/tasks/text_data.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/fetch/named_data.h"
#include "train/files/sha256.h"
#include "train/files/text_file.h"
#include "train/tasks/text_reading.h"
#include "train/text/dataset.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/text_files.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {
namespace {

// `text` is called only for a vocabulary that is made from it.
template <class MakeText>
std::unique_ptr<Tokenizer> tokenizer_for(TaskArguments& arguments, const MakeText& text) {
  const std::string& name = arguments.config.data.tokenizer;
  if (const std::int64_t vocab = arguments.config.model.vocab; !arguments.tokenizer)
    return name == kIdsTokenizer && vocab > 0 ? ids_tokenizer(vocab) : make_tokenizer(name, text());
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
  if (!arguments.may_extend || name != kCharTokenizer) return tokenizer;
  const std::vector<char32_t> missing = tokenizer->missing_in(text());
  return missing.empty() ? std::move(tokenizer) : tokenizer->with(missing);
}

// Calls `action` with each document of a file; its errors name the file.
template <class Action>
void read_with(const TextFile& file, const Reading& reading, const Action& action) {
  const Documents documents = documents_of(file, reading);
  try {
    for (std::size_t i = 0; i < documents.count(); ++i) action(documents[i]);
  } catch (const FormatError& error) {
    fail<FormatError>("data: {}: {}", shown_path(file), error.what());
  } catch (const ValueError& error) {
    fail<ValueError>("data: {}: {}", shown_path(file), error.what());
  }
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
      "are not kept: newlines, runs of spaces, and characters without a piece ({} tokenizer train makes a "
      "vocabulary that keeps every text)",
      vocabulary, data.name, share(cover.unknown, cover.tokens), share(cover.lost_bytes, cover.bytes),
      program_name()));
}

// The error of one text that was joined from several, as that of the first file that has it: with its name, and
// the offset in it.
void name_the_file(const ReadPhase& phase, const Reading& reading, const std::string& tokenizer_name,
                   const Tokenizer* tokenizer) {
  for (const TextFile& file : phase.files)
    read_with(file, reading, [&](std::string_view text) {
      static_cast<void>(tokenizer != nullptr ? tokenizer->encode(text)
                                             : make_tokenizer(tokenizer_name, text)->encode(text));
    });
}

// All texts of a reading one after another: what a vocabulary is made from.
std::string whole_text(const Reading& reading) {
  std::string all;
  all.reserve(static_cast<std::size_t>(reading.bytes));
  for (const ReadPhase& phase : reading.phases) {
    all += phase.text;
    if (!phase.separate) continue;
    for (const TextFile& file : phase.files) all += documents_of(file, reading).text;
  }
  return all;
}

// errors: ConfigError when the vocabulary of a run lacks characters of the texts that came into its folder.
void check_new_characters(const Tokenizer& tokenizer, const Reading& reading,
                          const TaskArguments& arguments) {
  std::set<char32_t> missing;
  std::string first;
  for (const TextFile& file : reading.phases.back().files)
    for (const char32_t character : tokenizer.missing_in(documents_of(file, reading).text)) {
      if (first.empty()) first = printable(file.name);
      missing.insert(character);
    }
  if (missing.empty()) return;
  fail<ConfigError>(
      "train: the vocabulary of {} lacks {} {} of the new texts, the first of them in {}: {} (a run keeps its "
      "vocabulary; a new run from its weights takes them in: {} train --init-from {} --data {} --run NEW)",
      arguments.run, missing.size(), plural(missing.size(), "character"), first,
      list_characters(std::vector<char32_t>(missing.begin(), missing.end())), program_name(),
      shell_quoted(arguments.run), arguments.config.data.path.quoted());
}

// Adds the tokens of a file's documents, but for those of a stream that are too short for a segment: they are left out.
// Returns how many were added.
std::int64_t add_file(TextData& data, const TextFile& file, std::int64_t segment, Reading& reading) {
  std::int64_t all = 0, added = 0, tokens = 0;
  read_with(file, reading, [&](std::string_view text) {
    const std::vector<std::int32_t> ids = data.tokenizer->encode(text, data.cover);
    ++all;
    tokens = std::ssize(ids);
    if (segment > 0 && tokens <= segment) return;
    data.add_part(ids, file.name);
    ++added;
  });
  if (reading.cut.cuts()) {
    reading.documents += all;
    reading.short_documents += all - added;
  }
  if (added > 0) return added;
  reading.files.left_out.push_back(
      {file.name, all == 1 ? fmt::format("{} {}, and a segment of {} needs {}", tokens,
                                         plural(tokens, "token"), segment, segment + 1)
                           : fmt::format("no document is longer than a segment of {}", segment)});
  return 0;
}

// Adds the tokens of a phase of separate files.
void encode_files(TextData& data, const ReadPhase& phase, std::int64_t segment, Reading& reading) {
  DataPhase& read = data.phases.back();
  std::set<std::string> left_out;
  for (std::int64_t i = 0; i < std::ssize(phase.files); ++i) {
    const TextFile& file = phase.files[static_cast<std::size_t>(i)];
    const std::int64_t added = add_file(data, file, segment, reading);
    if (added == 0) left_out.insert(file.path);
    read.parts += added;
    if (i < phase.about.train)
      read.train_parts += added;
    else if (phase.about.has_splits())
      read.valid_parts += added;
  }
  std::erase_if(reading.files.files, [&](const TextFile& file) { return left_out.contains(file.path); });
  const bool lacks_a_split = &phase == &reading.phases.front() && phase.about.train > 0 &&
                             (read.train_parts == 0 || (read.valid_parts == 0 && phase.about.valid > 0));
  if (read.parts == 0 || lacks_a_split)
    fail<ValueError>(
        "data: {} in {} is longer than a segment of {} tokens (a shorter train.sequence, data.order documents, which "
        "pads them, or data.order windows, which joins them)",
        lacks_a_split ? "no text of a split" : "no text", reading.path, segment);
}

// ", 60 documents set apart by <|endoftext|>, 3 of them left out, ..."; "" where files are not cut.
std::string describe_documents(const Reading& reading, std::int64_t segment) {
  if (!reading.cut.cuts()) return "";
  std::string text = fmt::format(", {} {}", reading.documents, plural(reading.documents, "document"));
  const std::string& mark = reading.cut.separator;
  if (!reading.cut.json_field.empty())
    text += fmt::format(", the field {} of each line of JSON", quote_text(reading.cut.json_field));
  if (!mark.empty()) text += fmt::format(", set apart by {}", mark == kEndOfText ? mark : quote_text(mark));
  if (reading.short_documents > 0)
    text += fmt::format(
        ", {} of them left out as no longer than a segment of {} (data.order documents reads them too)",
        reading.short_documents, segment);
  return text;
}

void encode(TextData& data, TaskArguments& arguments, Reading& reading) {
  const bool training = arguments.training;
  const ReadPhase& first = reading.phases.front();
  const bool one_text = reading.phases.size() == 1 && !first.separate;
  const std::string& name = arguments.config.data.tokenizer;
  const auto named = [&](const auto& action) {
    try {
      action();
    } catch (const Error&) {
      for (const ReadPhase& phase : reading.phases)
        if (!phase.separate) name_the_file(phase, reading, name, data.tokenizer.get());
      throw;
    }
  };
  named([&] {
    data.tokenizer = one_text ? tokenizer_for(arguments, [&] { return std::string_view(first.text); })
                              : tokenizer_for(arguments, [&] {
                                  return name == kCharTokenizer
                                             ? whole_text(reading)
                                             : std::string();  // only `char` needs the text
                                });
  });
  if (reading.grown) check_new_characters(*data.tokenizer, reading, arguments);
  const std::int64_t segment =
      value_is(arguments.config.data.order, DataOrder::stream) ? segment_length(arguments.config) : 0;
  for (const ReadPhase& phase : reading.phases) {
    data.phases.push_back({.first = data.parts()});
    if (phase.separate) {
      encode_files(data, phase, segment, reading);
      continue;
    }
    named([&] { data.add_part(data.tokenizer->encode(phase.text, data.cover), ""); });
    data.phases.back().parts = 1;
    data.phases.back().joined = true;
  }
  if (one_text) data.files.clear();
  // The folder's own test split, which only an evaluation reads.
  if (!reading.test.empty() && !training)
    for (TextFile& file :
         list_text_files(reading.test, document_unit(arguments.config.data), !reading.cut.json_field.empty())
             .files) {
      file.name = "test/" + file.name;
      add_file(data, file, segment, reading);
    }
  data.train_parts = data.phases.front().train_parts;
  data.valid_parts = data.phases.front().valid_parts;
  if (reading.phases.size() > 1) data = with_own_splits(std::move(data), arguments.config, training);
}

}  // namespace

std::span<const std::int32_t> TextData::part(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  const std::int64_t begin = at == 0 ? 0 : ends[at - 1];
  return std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(ends[at] - begin));
}

void TextData::add_part(std::span<const std::int32_t> part, const std::string& file) {
  tokens.insert(tokens.end(), part.begin(), part.end());
  ends.push_back(std::ssize(tokens));
  files.push_back(file);
}

TextData read_text_data(TaskArguments& arguments) {
  std::ostream nowhere(nullptr);  // without a buffer it discards everything
  PrintableBuffer safe(arguments.messages != nullptr ? *arguments.messages : nowhere);
  std::ostream messages(&safe);  // names of files may hold anything
  const DataConfig& config = arguments.config.data;
  if (value_is(config.order, DataOrder::documents) && config.path.empty())
    fail<ConfigError>("config: data.order is documents and data.path is empty (name a folder of texts)");
  TextData data;
  if (config.path.empty()) {
    const TextSource source = resolve_text(messages, standard_places(), arguments.expected_sha256);
    data.name = source.name;
    data.sha256 = sha256_hex(source.text);
    if (!arguments.expected_sha256.empty() && arguments.expected_sha256 != data.sha256)
      fail_other_text(arguments, data.name, data.sha256);
    data.source_phases = {{.step = 0,
                           .folder = false,
                           .train = 0,
                           .valid = 0,
                           .parts = {{data.name, std::ssize(source.text), data.sha256}}}};
    data.tokenizer = tokenizer_for(arguments, [&] { return std::string_view(source.text); });
    data.add_part(data.tokenizer->encode(source.text, data.cover), "");
    data.files.clear();
  } else {
    Reading reading = find_reading(arguments);
    if (reading.has_splits() && arguments.training && config.test > 0)
      fail<ConfigError>("config: data.test is {} and {} brings its own splits (leave it out)", config.test,
                        reading.path);
    const bool has_name = config.path.size() == 1 && data_set_named(config.path.front()) != nullptr;
    data.name = has_name ? config.path.front() : printable(reading.path);
    data.sha256 = reading.sha256;
    data.grown = reading.grown;
    for (const ReadPhase& phase : reading.phases) data.source_phases.push_back(phase.about);
    if (is_sentencepiece_path(config.tokenizer))
      if (const std::string text = long_encoding_text(kSentencePiece, config.tokenizer, reading.bytes);
          !text.empty())
        messages << "data: " << text << '\n' << std::flush;
    encode(data, arguments, reading);
    messages << "data: " << data.name << (reading.files.folder ? ", " : " ")
             << describe_read(reading.files, reading.bytes)
             << describe_documents(reading, segment_length(arguments.config))
             << describe_left_out(reading.files) << reading.how << '\n';
  }
  warn_of_losses(data, config.tokenizer);
  return data;
}

}  // namespace eddy::training
