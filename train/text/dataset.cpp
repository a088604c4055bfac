// Finding tiny Shakespeare (local, cached or downloaded), or the stories.
#include "train/text/dataset.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "train/fetch/named_data.h"
#include "train/files/folders.h"
#include "train/files/sha256.h"
#include "train/text/stories/stories.h"
#include "train/text/text_files.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRelativePath = "tinyshakespeare/input.txt";
constexpr std::uint64_t kStorySeed = 1;
constexpr std::int64_t kStoryBytes = std::int64_t{1} << 20;

// A text that was read and checked, or the reason why there is none.
struct Attempt {
  std::optional<std::string> text;
  std::string reason;
};

// Puts a file out of the way without losing it: it may be the user's. Returns what was done.
std::string rename_file(const std::string& path) {
  const std::string aside = set_aside(path);
  return aside.empty() ? "file not renamed" : "file renamed to " + aside;
}

std::string remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  return "file removed";
}

// The file when it exists and has the right checksum. One with another goes by `put_away`, with a line to
// `messages`.
Attempt checked_file(const std::string& path, const std::string& sha256, std::ostream& messages,
                     std::string (*put_away)(const std::string&)) {
  std::error_code error;
  if (!fs::exists(path, error)) return {std::nullopt, "not there"};
  std::string text = InputFile(path).text();
  const std::string found = sha256_hex(text);
  if (found == sha256) return {std::move(text), ""};
  messages << "data: wrong checksum, " << put_away(path) << ": " << path << " has SHA-256 " << found
           << ", expected " << sha256 << '\n';
  return {std::nullopt, "the checksum was wrong"};
}

Attempt download(const std::string& path, const TextPlaces& places, std::ostream& messages) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return {std::nullopt, fmt::format("cannot create the folder for {}: {}", path, error.message())};
  // The name holds the process id: two runs that download at the same time do not write into one file.
  const std::string partial = fmt::format("{}.{}.part", path, getpid());
  const std::string reason = places.fetch(places.origin, partial);
  if (!reason.empty()) {
    fs::remove(partial, error);
    return {std::nullopt, reason};
  }
  Attempt attempt = checked_file(partial, places.sha256, messages, remove_file);
  if (!attempt.text) return attempt;
  fs::rename(partial, path, error);
  if (error) {
    const std::string what = fmt::format("cannot rename {}: {}", partial, error.message());
    fs::remove(partial, error);
    return {std::nullopt, what};
  }
  return attempt;
}

}  // namespace

TextPlaces standard_places() {
  const DataPlaces standard = DataPlaces::standard();
  const auto set = std::find_if(data_sets().begin(), data_sets().end(),
                                [](const DataSet& one) { return one.name == "tinyshakespeare"; });
  const DataOrigin& origin = set->origins.front();
  TextPlaces places;
  places.data_dir = standard.data_dir;
  places.cache_dir = standard.cache;
  places.origin = origin.url;
  places.sha256 = origin.digest.substr(origin.digest.find(':') + 1);
  places.fetch = fetch_with_curl;
  return places;
}

std::int64_t text_bytes(const DataConfig& config) {
  std::int64_t bytes = 0;
  // What is chosen where no path is given has the size of the first that is tried.
  for (const std::string& path : config.path.empty() ? DataPaths("tinyshakespeare") : config.path) {
    if (const DataSet* const set = data_set_named(path)) {
      for (const DataOrigin& origin : set->origins) bytes += origin.bytes;
      continue;
    }
    std::error_code error;
    if (!fs::is_regular_file(path, error) && !fs::is_directory(path, error)) return 0;
    try {
      const TextFiles texts = list_text_files(path, document_unit(config), !config.json_field.empty());
      for (const TextFile& file : single_files(texts.files))
        bytes += static_cast<std::int64_t>(fs::file_size(file.path));
    } catch (const Error&) {  // who reads the text says what is wrong
      return 0;
    } catch (const fs::filesystem_error&) {
      return 0;
    }
  }
  return bytes;
}

TextSource resolve_text(std::ostream& messages, const TextPlaces& places, const std::string& same_as) {
  if (!same_as.empty() && same_as != places.sha256) {
    TextSource source{generate_stories(kStorySeed, kStoryBytes), "stories"};
    if (sha256_hex(source.text) == same_as) {
      messages << "data: stories written by Eddy, " << kStoryBytes << " bytes, seed " << kStorySeed
               << " (the run was trained on them)\n";
      return source;
    }
  }

  if (!places.data_dir.empty()) {
    const std::string path = (fs::path(places.data_dir) / kRelativePath).string();
    std::error_code error;
    if (!fs::exists(path, error))
      fail<IoError>(
          "data: EDDY_DATA_DIR lacks a file: '{}' (put tiny Shakespeare there, unset EDDY_DATA_DIR, or "
          "give --data.path)",
          path);
    TextSource source{read_text(path), "tinyshakespeare"};
    const bool known = sha256_hex(source.text) == places.sha256;
    messages << "data: tiny Shakespeare from " << path << ", " << source.text.size()
             << " bytes (EDDY_DATA_DIR" << (known ? "" : "; its SHA-256 is not that of the published file")
             << ")\n";
    return source;
  }

  std::string reason =
      "there is no cache folder, as neither EDDY_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set";
  if (!places.cache_dir.empty()) {
    const std::string path = (fs::path(places.cache_dir) / kRelativePath).string();
    try {
      Attempt attempt = checked_file(path, places.sha256, messages, rename_file);
      const bool cached = attempt.text.has_value();
      if (!cached) attempt = download(path, places, messages);
      if (attempt.text) {
        messages << "data: tiny Shakespeare from " << path << ", " << attempt.text->size() << " bytes ("
                 << (cached ? "cached" : "downloaded now")
                 << ", SHA-256 checked; neither --data.path nor EDDY_DATA_DIR "
                 << "is given)\n";
        return {std::move(*attempt.text), "tinyshakespeare"};
      }
      reason = attempt.reason;
    } catch (const IoError& error) {
      reason = error.what();
    }
  }
  TextSource source{generate_stories(kStorySeed, kStoryBytes), "stories"};
  messages << "data: stories written by Eddy, " << kStoryBytes << " bytes, seed " << kStorySeed
           << " (tiny Shakespeare could not be had: " << reason
           << "; to take your own text give --data.path)\n";
  return source;
}

}  // namespace eddy::training
