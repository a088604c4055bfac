// Finding, recognising and checking the files of a text. Of those that stay separate, one at a time is in memory.
#include "train/tasks/text_reading.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/files/sha256.h"
#include "train/files/standard_input.h"
#include "train/files/text_encoding.h"
#include "train/text/unreadable.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNew = "new since the run began";

const char* program_of(const TaskArguments& arguments) {
  return arguments.training ? "train" : "eval";
}

// The files of a path, those of its own splits in their order.
struct Listing {
  TextFiles texts;
  std::int64_t train = 0, valid = 0;  // files of the splits
  std::string test;                   // their folder
};

// Adds what lies beside the splits of a folder to what is left out.
void add_beside(const std::string& path, const SplitFolder& splits, TextFiles& texts) {
  std::error_code error;
  std::vector<LeftOut> beside;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string place = entry->path().string();
    if (place != splits.train && place != splits.valid && place != splits.test)
      beside.push_back({entry->path().filename().string(), "beside train and valid"});
  }
  std::sort(beside.begin(), beside.end(), [](const LeftOut& a, const LeftOut& b) { return a.name < b.name; });
  texts.left_out.insert(texts.left_out.end(), beside.begin(), beside.end());
}

Listing list(const DataPaths& paths, const std::optional<SplitFolder>& splits, DocumentUnit unit,
             bool json_lines) {
  Listing listing;
  const auto add = [&](const DataPaths& from, const std::string& prefix) {
    TextFiles found = list_text_files(from, unit, json_lines);
    for (TextFile& file : found.files) {
      file.name = prefix + file.name;
      listing.texts.files.push_back(std::move(file));
    }
    for (LeftOut& file : found.left_out) listing.texts.left_out.push_back({prefix + file.name, file.why});
    listing.texts.folder = listing.texts.folder || found.folder;
    listing.texts.other_endings = listing.texts.other_endings || found.other_endings;
    return std::ssize(found.files);
  };
  if (splits) {
    listing.train = add(splits->train, "train/");
    listing.valid = add(splits->valid, "valid/");
    listing.test = splits->test;
    add_beside(paths.front(), *splits, listing.texts);
  } else {
    add(paths, "");
  }
  return listing;
}

// What the files hold, of a rule by which they may be cut.
struct Found {
  bool separator = false, json_lines = false;
  std::string json_file, json_field;  // the first file of lines of JSON, and its text
  // The same of one that is an array of JSON, and what makes lines of it.
  std::string array_file, array_field, array_command;
  std::map<std::string, std::string> markup{};  // what markup_of says: the first such file
};

// Looks at every file once.
// errors: FormatError that names every file which cannot be read.
Found look_at(TextFiles& texts, bool needs_utf8, const CutRule& rule) {
  Found found;
  std::vector<Unreadable> unreadable;
  texts.all_utf8 = true;
  const std::vector<TextFile> files = single_files(texts.files);
  for (const TextFile& file : files) {
    std::string bytes = bytes_of(file);
    if (const std::optional<Unreadable> why = why_unreadable(file, bytes, true)) {
      texts.all_utf8 = false;
      if (needs_utf8 || why_unreadable(file, bytes, false)) {
        unreadable.push_back(*why);
        continue;
      }
    }
    const std::string text = decode_text(std::move(bytes), shown_path(file));
    found.separator =
        found.separator || (!rule.separator.empty() && text.find(rule.separator) != std::string::npos);
    if (const std::string object = found.array_file.empty() ? first_in_json_array(text) : "";
        !object.empty()) {
      found.array_file = shown_path(file);
      found.array_field = likely_text_field(object);
      found.array_command = "jq -c '.[]'";
      if (file.path != kStandardInput) {
        fs::path lines = fs::path(file.path).replace_extension(".jsonl");
        if (lines == file.path)
          lines.replace_extension(".lines.jsonl");  // or the command would empty the file
        found.array_command += fmt::format(" {} > {}", shell_quoted(file.path), shell_quoted(lines.string()));
      }
    }
    const bool lines = is_json_lines(text, file.name);
    if (const std::string markup = lines ? "" : markup_of(text, file.name); !markup.empty())
      found.markup.emplace(markup, shown_path(file));
    if (found.json_lines || !lines || found.array_file == shown_path(file)) continue;
    found.json_lines = true;
    found.json_file = shown_path(file);
    found.json_field = likely_text_field(text);
  }
  if (!unreadable.empty()) fail_unreadable(unreadable, files.size());
  return found;
}

// The rule by which the files of a new text are cut: without what they do not hold.
// errors: ConfigError for a separator or a field that was asked for and does not occur.
CutRule rule_of_found(const CutRule& rule, const Found& found, const std::string& path,
                      const TaskArguments& arguments) {
  const DataConfig& data = arguments.config.data;
  if (arguments.training && !found.separator && !rule.separator.empty() && data.separator != kEndOfText)
    fail<ConfigError>("config: data.separator is {}, which does not occur in {} (leave it out)",
                      quote_text(data.separator), path);
  if (arguments.training && !found.json_lines && !rule.json_field.empty())
    fail<ConfigError>(
        "config: data.json_field is {}, and {} has no lines of JSON ({})", quote_text(data.json_field), path,
        found.array_file.empty() ? "leave it out"
                                 : fmt::format("{} is an array; lines are made of it by: {}",
                                               printable(found.array_file), printable(found.array_command)));
  if (found.json_lines && rule.json_field.empty() && !value_is(data.document, DocumentUnit::folder))
    add_warning(fmt::format(
        "warning: {} has lines of JSON and is read as it stands, with its braces and keys ({})",
        printable(found.json_file),
        found.json_field.empty()
            ? "none of its fields holds a text; jq -c '{text: .FIELD}' makes lines of which --data.json_field text does"
            : fmt::format("--data.json_field {} reads that field of each line, as a document",
                          shell_quoted(printable(found.json_field)))));
  if (!value_is(data.document, DocumentUnit::folder))
    for (const auto& [what, file] : found.markup)
      add_warning(fmt::format("warning: {} {}", printable(file), what));
  if (!found.array_file.empty() && !value_is(data.document, DocumentUnit::folder))
    add_warning(fmt::format(
        "warning: {} is an array of JSON and is read as it stands, with its braces and keys ({} makes lines of JSON of it, "
        "of which --data.json_field {} reads that field of each, as a document)",
        printable(found.array_file), printable(found.array_command),
        shell_quoted(printable(found.array_field.empty() ? "NAME" : found.array_field))));
  return {found.separator ? rule.separator : "", found.json_lines ? rule.json_field : ""};
}

// The files that a run was trained on, and the others of its folder.
struct Recognised {
  std::vector<ReadPhase> phases;
  std::vector<TextFile> others;
};

// The split that a name begins with: "train/".
std::string split_of(const std::string& name, bool has_splits) {
  return has_splits ? name.substr(0, name.find('/') + 1) : "";
}

// Those with the digests that a run kept. One that is under its name is looked at first.
// errors: ConfigError that names those which are changed or gone.
Recognised of_digests(const Listing& listing, const std::vector<TextPhase>& known,
                      const TaskArguments& arguments, const std::string& path) {
  const bool has_splits = known.front().has_splits();
  struct Candidate {
    const TextFile* file;
    std::string digest{};
    bool taken = false;
  };
  std::vector<Candidate> candidates;
  std::multimap<std::string, std::size_t> by_name;
  for (const TextFile& file : listing.texts.files) {
    by_name.emplace(printable(file.name), candidates.size());
    candidates.push_back({&file});
  }
  const auto digest_of = [](Candidate& candidate) -> const std::string& {
    if (candidate.digest.empty()) candidate.digest = sha256_hex(training::text_of(*candidate.file));
    return candidate.digest;
  };
  Recognised found;
  struct Wanted {
    const TextPart* part;
    TextFile* to;
  };
  std::vector<Wanted> moved;  // not under their names
  for (const TextPhase& phase : known) {
    ReadPhase& read = found.phases.emplace_back();
    read.about = phase;
    read.files.resize(phase.parts.size());
  }
  for (ReadPhase& read : found.phases)
    for (std::size_t i = 0; i < read.files.size(); ++i) {
      const TextPart& part = read.about.parts[i];
      const auto [begin, end] = by_name.equal_range(part.name);
      const auto same = std::find_if(begin, end, [&](const auto& entry) {
        Candidate& candidate = candidates[entry.second];
        return !candidate.taken && digest_of(candidate) == part.sha256;
      });
      if (same == end) {
        moved.push_back({&part, &read.files[i]});
        continue;
      }
      candidates[same->second].taken = true;
      read.files[i] = *candidates[same->second].file;
    }
  std::multimap<std::string, Candidate*> by_digest;  // and by their splits
  if (!moved.empty())
    for (Candidate& candidate : candidates)
      if (!candidate.taken)
        by_digest.emplace(split_of(candidate.file->name, has_splits) + digest_of(candidate), &candidate);
  std::vector<std::string> problems;
  for (const auto& [part, to] : moved) {
    const auto same = by_digest.find(split_of(part->name, has_splits) + part->sha256);
    if (same == by_digest.end()) {
      problems.push_back(part->name + (by_name.contains(part->name) ? " is changed" : " is gone"));
      continue;
    }
    same->second->taken = true;
    *to = *same->second->file;
    by_digest.erase(same);
  }
  if (!problems.empty()) {
    constexpr std::size_t kShown = 8;
    const std::size_t more = problems.size() > kShown ? problems.size() - kShown : 0;
    problems.resize(problems.size() - more);
    fail<ConfigError>(
        "{}: {} is not the text that {} was trained on: {}{} (put back what it was, name the text by --data, or "
        "start a new run with --init-from)",
        program_of(arguments), path, arguments.run, fmt::join(problems, ", "),
        more > 0 ? fmt::format(" and {} more", more) : "");
  }
  for (const Candidate& candidate : candidates)
    if (!candidate.taken) found.others.push_back(*candidate.file);
  return found;
}

// The phase of files that came into the folder of a run.
ReadPhase new_phase(std::vector<TextFile> files, bool has_splits, const CutRule& cut) {
  ReadPhase phase;
  phase.about.folder = true;
  phase.about.cut = cut;
  if (has_splits) {
    phase.about.train = std::count_if(files.begin(), files.end(),
                                      [](const TextFile& file) { return file.name.starts_with("train/"); });
    phase.about.valid = std::ssize(files) - phase.about.train;
  }
  phase.files = std::move(files);
  return phase;
}

// Reads the files of a phase once: fills its text, where it is joined, and its digests, where they are not known.
// Adds what the digest of separate files covers to `all`, unless it is null.
void take_in(ReadPhase& phase, Reading& reading, Sha256* all) {
  const bool known = !phase.about.parts.empty();
  for (std::size_t i = 0; i < phase.files.size(); ++i) {
    std::string text = text_of(phase.files[i]);
    if (!known)
      phase.about.parts.push_back({printable(phase.files[i].name), std::ssize(text), sha256_hex(text)});
    if (phase.separate) {
      reading.bytes += std::ssize(text);
      if (all == nullptr) continue;
      all->update(fmt::format("{} {}\n", text.size(), phase.files[i].name));
      all->update(text);
      continue;
    }
    if (reading.cut.cuts()) {
      Documents documents =
          documents_in(std::move(text), reading.cut, shown_path(phase.files[i]), reading.end_lines);
      reading.documents += std::ssize(documents.ends);
      text = std::move(documents.text);
    }
    if (phase.text.empty())
      phase.text = std::move(text);  // one large file is not copied
    else
      phase.text += text;
    if (phase.about.folder && !phase.text.empty() && phase.text.back() != '\n') phase.text.push_back('\n');
  }
  reading.bytes += std::ssize(phase.text);
}

Reading read_path(const DataPaths& paths, const TaskArguments& arguments) {
  const std::vector<TextPhase>& known = arguments.expected_phases;
  const bool goes_on = !known.empty();
  Reading reading;
  const bool is_input = paths.size() == 1 && paths.front() == kStandardInput;
  const std::string path = reading.path = is_input ? kInputName : paths.text();
  const std::optional<DataOrder> order = value_named<DataOrder>(arguments.config.data.order);
  // A run that goes on is cut as it was.
  const CutRule rule = goes_on ? known.front().cut : cut_rule(arguments.config.data);
  std::optional<SplitFolder> splits = paths.size() == 1 ? find_splits(paths.front()) : std::nullopt;
  if (goes_on && known.front().has_splits() != splits.has_value()) {
    if (!splits)
      fail<ConfigError>("{}: {} has no folders train and valid, and the text of {} had (name it by --data)",
                        program_of(arguments), path, arguments.run);
    splits.reset();
  }
  const bool keeps_files = order == DataOrder::documents || splits.has_value();
  Listing listing = list(paths, splits, document_unit(arguments.config.data), !rule.json_field.empty());
  reading.test = listing.test;
  if (paths.size() == 1 && lacks_validation(paths.front()))
    reading.how =
        ", test/ as a part of it, since no folder valid/ is beside train/ (to keep test/ apart, make one)";

  Recognised found;
  if (goes_on) {
    found = of_digests(listing, known, arguments, path);
  } else {
    ReadPhase& phase = found.phases.emplace_back();
    phase.about.folder = listing.texts.folder;
    phase.about.train = listing.train;
    phase.about.valid = listing.valid;
    phase.files = listing.texts.files;
  }
  reading.phases = std::move(found.phases);
  if (arguments.may_grow && !found.others.empty()) {
    reading.grown = true;
    reading.phases.push_back(new_phase(std::move(found.others), splits.has_value(), rule));
    found.others.clear();
  }
  reading.files = std::move(listing.texts);
  reading.files.files.clear();
  for (const ReadPhase& phase : reading.phases)
    reading.files.files.insert(reading.files.files.end(), phase.files.begin(), phase.files.end());
  std::vector<LeftOut> left_out;
  for (const TextFile& file : found.others) left_out.push_back({file.name, kNew});
  reading.files.left_out.insert(reading.files.left_out.begin(), left_out.begin(), left_out.end());
  if (!left_out.empty() && arguments.training)
    reading.how += fmt::format("; to train on what is new too: --data {}", paths.quoted());
  if (!goes_on && reading.files.other_endings && arguments.training)
    reading.how += "; data.document folder reads texts of every ending";
  const Found held = look_at(reading.files, arguments.config.data.tokenizer == kCharTokenizer, rule);
  reading.cut = goes_on ? rule : rule_of_found(rule, held, path, arguments);
  reading.end_lines = order == DataOrder::windows;
  for (ReadPhase& phase : reading.phases) phase.separate = keeps_files || order != DataOrder::windows;
  ReadPhase& first = reading.phases.front();
  first.about.cut = reading.cut;
  // A folder of one text is that text.
  const bool validates = arguments.config.train.eval_every > 0;
  const bool one = !first.about.folder || (!splits && validates && first.files.size() == 1);
  if (order == DataOrder::stream && !keeps_files && one && !reading.cut.cuts()) first.separate = false;

  // Texts that were recognised by their digests are those of the run.
  const bool is_known = goes_on && reading.phases.size() == 1;
  Sha256 all;
  for (ReadPhase& phase : reading.phases) take_in(phase, reading, is_known ? nullptr : &all);
  if (is_known) {
    reading.sha256 = arguments.expected_sha256;
    return reading;
  }
  if (reading.phases.size() == 1) {
    const ReadPhase& only = reading.phases.front();
    reading.sha256 = only.separate ? all.hex_digest() : sha256_hex(only.text);
    return reading;
  }
  std::string digests;
  for (const ReadPhase& phase : reading.phases)
    for (const TextPart& part : phase.about.parts)
      digests += part.sha256 + (&part == &phase.about.parts.back() ? "\n" : " ");
  reading.sha256 = sha256_hex(digests);
  reading.how += fmt::format(", in {} phases", reading.phases.size());
  return reading;
}

}  // namespace

void fail_other_text(const TaskArguments& arguments, const std::string& name, const std::string& sha256) {
  fail<ConfigError>(
      "{}: {} is not the text that {} was trained on: SHA-256 {} and {} (name it by --data, or start a new run "
      "with --init-from)",
      program_of(arguments), name, arguments.run, sha256, arguments.expected_sha256);
}

Documents documents_of(const TextFile& file, const Reading& reading) {
  return documents_of(file, reading.cut, reading.end_lines);
}

Reading find_reading(const TaskArguments& arguments) {
  const std::string& expected = arguments.expected_sha256;
  const std::vector<DataPaths> places = data_paths(arguments);
  for (const std::string& path : places.front())
    if (std::error_code error; !arguments.folders.empty() && path != kStandardInput &&
                               fs::path(path).is_relative() && !fs::exists(path, error))
      fail<IoError>("data: no such file or folder: '{}', neither here nor in {} (name it by --data)", path,
                    arguments.folders.front());
  std::exception_ptr problem;  // the first; another place may have the text
  for (const DataPaths& paths : places) {
    try {
      Reading reading = read_path(paths, arguments);
      if (arguments.expected_phases.empty() && !expected.empty() && reading.sha256 != expected)
        fail_other_text(arguments, paths.text(), reading.sha256);
      return reading;
    } catch (const Error&) {
      if (!problem) problem = std::current_exception();
    }
  }
  std::rethrow_exception(problem);
}

}  // namespace eddy::training
