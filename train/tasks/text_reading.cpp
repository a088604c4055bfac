// Finding, recognising and checking the files of a text. Of those that stay separate, one at a time is in memory.
#include "train/tasks/text_reading.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>

#include "tensor/base/format.h"
#include "train/files/sha256.h"
#include "train/text/unreadable.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNew = "new since the run began";

const char* program_of(const TaskArguments& arguments) {
  return arguments.training ? "train" : "eval";
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
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

Listing list(const std::string& path, const std::optional<SplitFolder>& splits, DocumentUnit unit) {
  Listing listing;
  const auto add = [&](const std::string& from, const std::string& prefix) {
    TextFiles found = list_text_files(from, unit);
    for (TextFile& file : found.files) {
      file.name = prefix + file.name;
      listing.texts.files.push_back(std::move(file));
    }
    for (LeftOut& file : found.left_out) listing.texts.left_out.push_back({prefix + file.name, file.why});
    listing.texts.folder = listing.texts.folder || found.folder;
    return std::ssize(found.files);
  };
  if (splits) {
    listing.train = add(splits->train, "train/");
    listing.valid = add(splits->valid, "valid/");
    listing.test = splits->test;
    add_beside(path, *splits, listing.texts);
  } else {
    add(path, "");
  }
  return listing;
}

// errors: FormatError that names every file which cannot be read.
void check_readable(TextFiles& texts, bool needs_utf8) {
  std::vector<Unreadable> unreadable;
  texts.all_utf8 = true;
  const std::vector<TextFile> files = single_files(texts.files);
  for (const TextFile& file : files) {
    const std::optional<Unreadable> why = why_unreadable(file, true);
    if (!why) continue;
    texts.all_utf8 = false;
    if (needs_utf8 || why_unreadable(file, false)) unreadable.push_back(*why);
  }
  if (!unreadable.empty()) fail_unreadable(unreadable, files.size());
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
  std::vector<std::string> problems;
  for (const auto& [part, to] : moved) {
    const auto same =
        std::find_if(candidates.begin(), candidates.end(), [&, &wanted = *part](Candidate& candidate) {
          return !candidate.taken &&
                 split_of(candidate.file->name, has_splits) == split_of(wanted.name, has_splits) &&
                 digest_of(candidate) == wanted.sha256;
        });
    if (same == candidates.end()) {
      problems.push_back(part->name + (by_name.contains(part->name) ? " is changed" : " is gone"));
      continue;
    }
    same->taken = true;
    *to = *same->file;
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
ReadPhase new_phase(std::vector<TextFile> files, bool has_splits, bool separate) {
  ReadPhase phase;
  phase.about.folder = true;
  if (has_splits) {
    phase.about.train = std::count_if(files.begin(), files.end(),
                                      [](const TextFile& file) { return file.name.starts_with("train/"); });
    phase.about.valid = std::ssize(files) - phase.about.train;
  }
  phase.files = std::move(files);
  phase.separate = separate;
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
    if (phase.text.empty())
      phase.text = std::move(text);  // one large file is not copied
    else
      phase.text += text;
    if (phase.about.folder && !phase.text.empty() && phase.text.back() != '\n') phase.text.push_back('\n');
  }
  reading.bytes += std::ssize(phase.text);
}

Reading read_path(const std::string& path, const TaskArguments& arguments) {
  const std::vector<TextPhase>& known = arguments.expected_phases;
  const bool goes_on = !known.empty();
  Reading reading;
  reading.path = path;
  const std::string& order = arguments.config.data.order;
  std::optional<SplitFolder> splits = find_splits(path);
  if (goes_on && known.front().has_splits() != splits.has_value()) {
    if (!splits)
      fail<ConfigError>("{}: {} has no folders train and valid, and the text of {} had (name it by --data)",
                        program_of(arguments), path, arguments.run);
    splits.reset();
  }
  const bool keeps_files = order == "documents" || splits.has_value();
  bool separate = keeps_files || (order == "stream" && is_folder(path));
  Listing listing = list(path, splits, document_unit(arguments.config.data));
  reading.test = listing.test;
  if (lacks_validation(path))
    reading.how =
        ", test/ as a part of it, since no folder valid/ is beside train/ (to keep test/ apart, make one)";

  Recognised found;
  if (goes_on) {
    found = of_digests(listing, known, arguments, path);
    separate = keeps_files || (order == "stream" && known.front().folder);
  } else {
    ReadPhase& phase = found.phases.emplace_back();
    phase.about.folder = listing.texts.folder;
    phase.about.train = listing.train;
    phase.about.valid = listing.valid;
    phase.files = listing.texts.files;
  }
  // A folder of one text is that text.
  const bool validates = arguments.config.train.eval_every > 0;
  if (order == "stream" && !splits && validates && found.phases.front().files.size() == 1) separate = false;
  for (std::size_t i = 0; i < found.phases.size(); ++i)
    found.phases[i].separate = i == 0 ? separate : keeps_files || order != "windows";

  reading.phases = std::move(found.phases);
  if (arguments.may_grow && !found.others.empty()) {
    reading.grown = true;
    reading.phases.push_back(
        new_phase(std::move(found.others), splits.has_value(), keeps_files || order != "windows"));
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
    reading.how += fmt::format("; to train on what is new too: --data {}", shell_quoted(path));
  check_readable(reading.files, arguments.config.data.tokenizer == "char");

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

Reading find_reading(const TaskArguments& arguments) {
  const std::string& expected = arguments.expected_sha256;
  const std::vector<std::string> paths = data_paths(arguments);
  const fs::path first(paths.front());
  std::error_code error;
  if (!arguments.folders.empty() && first.is_relative() && !fs::exists(first, error))
    fail<IoError>("data: no such file or folder: '{}', neither here nor in {} (name it by --data)",
                  paths.front(), arguments.folders.front());
  std::exception_ptr problem;  // the first; another place may have the text
  for (const std::string& path : paths) {
    try {
      Reading reading = read_path(path, arguments);
      if (arguments.expected_phases.empty() && !expected.empty() && reading.sha256 != expected)
        fail_other_text(arguments, path, reading.sha256);
      return reading;
    } catch (const Error&) {
      if (!problem) problem = std::current_exception();
    }
  }
  std::rethrow_exception(problem);
}

}  // namespace eddy::training
