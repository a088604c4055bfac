// Finding tiny Shakespeare (local, cached or downloaded), or the stories.
#include "train/text/dataset.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "train/files/folders.h"
#include "train/files/sha256.h"
#include "train/text/stories/stories.h"
#include "train/text/text_files.h"

extern char** environ;

namespace eddy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOrigin =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";
constexpr const char* kSha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";
constexpr const char* kRelativePath = "tinyshakespeare/input.txt";
constexpr std::uint64_t kStorySeed = 1;
constexpr std::int64_t kStoryBytes = std::int64_t{1} << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// curl's exit statuses that a user meets; the manual page lists the rest.
std::string curl_reason(int status) {
  static const std::map<int, const char*> kReasons{{5, "the server's name could not be resolved (offline?)"},
                                                   {6, "the server's name could not be resolved (offline?)"},
                                                   {7, "no connection to the server (offline?)"},
                                                   {22, "the server does not have the file"},
                                                   {23, "the file could not be written"},
                                                   {28, "it took too long"},
                                                   {37, "the file could not be read"},
                                                   {60, "the server's certificate could not be verified"},
                                                   {127, "curl is not installed"}};
  const auto found = kReasons.find(status);
  return found != kReasons.end() ? found->second : fmt::format("curl ended with status {}", status);
}

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

std::string fetch_with_curl(const std::string& url, const std::string& path) {
  std::vector<std::string> words = {"curl", "--silent",   "--fail", "--location", "--connect-timeout",
                                    "3",    "--max-time", "20",     "--output",   path,
                                    "--",   url};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return "no memory to start curl";
  int error = 0;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (error == 0) error = posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  if (error == 0) error = posix_spawnp(&child, "curl", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return curl_reason(127);
  if (error != 0) return fmt::format("curl could not be started: {}", std::strerror(error));

  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return fmt::format("curl was lost: {}", std::strerror(errno));
  if (!WIFEXITED(status)) return "curl was stopped by a signal";
  return WEXITSTATUS(status) == 0 ? "" : curl_reason(WEXITSTATUS(status));
}

TextPlaces standard_places() {
  TextPlaces places;
  places.data_dir = environment("EDDY_DATA_DIR");
  const std::string cache = environment("XDG_CACHE_HOME");
  const std::string home = environment("HOME");
  // By the XDG base directory specification, relative values of XDG_CACHE_HOME are ignored.
  if (!cache.empty() && cache.front() == '/')
    places.cache_dir = cache;
  else if (!home.empty())
    places.cache_dir = home + "/.cache";
  places.origin = kOrigin;
  places.sha256 = kSha256;
  places.fetch = fetch_with_curl;
  return places;
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

  std::string reason = "there is no cache folder, as neither XDG_CACHE_HOME nor HOME is set";
  if (!places.cache_dir.empty()) {
    const std::string path = (fs::path(places.cache_dir) / "eddy" / kRelativePath).string();
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

}  // namespace eddy
