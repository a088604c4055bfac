// The table of data sets, and how one comes into the cache: under a temporary name, checked, then renamed.
#include "train/fetch/named_data.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/files/input_file.h"
#include "train/files/md5.h"
#include "train/files/sha256.h"
#include "train/files/text_file.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDigests = "digests";
constexpr std::int64_t kMegabyte = 1'000'000;

const std::vector<DataSet> kSets{
    {.name = "tinyshakespeare",
     .summary = "plays of Shakespeare, 1.1 MB",
     .folder = "tinyshakespeare",
     .origins =
         {{.url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
           .file = "input.txt",
           .digest = "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
           .bytes = 1'115'394}},
     .path = "input.txt"},
    {.name = "enwik8",
     .summary = "the first 100 MB of an English Wikipedia, with its markup; split 90, 5 and 5 %",
     .folder = "enwik8",
     .origins = {{.url = "https://mattmahoney.net/dc/enwik8.zip",
                  .file = "enwik8.zip",
                  .digest = "",
                  .bytes = 36 * kMegabyte,
                  .packing = Packing::zip,
                  .members = {{"enwik8", "md5:a1fa5ffddb56f4953e226637dabbb36a"}}}},
     .path = "enwik8",
     .keys = {{"data.tokenizer", "byte"}, {"data.test", "0.05"}}},
    {.name = "tinystories",
     .summary = "two million short stories in simple English, 1.9 GB; training needs about 10 GB of memory",
     .folder = "tinystories",
     .origins =
         {{.url = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main/TinyStories-train.txt",
           .file = "train/TinyStories-train.txt",
           .digest = "",
           .bytes = 1920 * kMegabyte},
          {.url = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main/TinyStories-valid.txt",
           .file = "valid/TinyStories-valid.txt",
           .digest = "",
           .bytes = 19 * kMegabyte}},
     .path = "",
     .stories = true,
     .keys = {{"data.tokenizer", "byte260"}}},
    {.name = "cifar10",
     .summary = "60 000 pictures of ten classes, read as grey values",
     .folder = "cifar10",
     .origins = {{.url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                  .file = "cifar-10-binary.tar.gz",
                  .digest = "md5:c32a1d4ab5d03f1284b67883e8d87530",
                  .bytes = 170 * kMegabyte,
                  .packing = Packing::tar_gz,
                  .members = {{"cifar-10-batches-bin/data_batch_1.bin", ""},
                              {"cifar-10-batches-bin/data_batch_2.bin", ""},
                              {"cifar-10-batches-bin/data_batch_3.bin", ""},
                              {"cifar-10-batches-bin/data_batch_4.bin", ""},
                              {"cifar-10-batches-bin/data_batch_5.bin", ""},
                              {"cifar-10-batches-bin/test_batch.bin", ""}}}},
     .path = "cifar-10-batches-bin"},
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Calls take(bytes) for the pieces of a file.
template <class Take>
void for_each_piece(const fs::path& path, const Take& take) {
  const InputFile file(path.string());
  std::string piece(std::size_t{1} << 20, '\0');
  for (std::int64_t at = 0; at < file.bytes();) {
    const std::int64_t here = std::min<std::int64_t>(std::ssize(piece), file.bytes() - at);
    file.read(at, piece.data(), here);
    take(std::string_view(piece).substr(0, static_cast<std::size_t>(here)));
    at += here;
  }
}

template <class Hash>
std::string digest_of(const fs::path& path) {
  Hash hash;
  for_each_piece(path, [&](std::string_view piece) { hash.update(piece); });
  return hash.hex_digest();
}

// What is wrong with a file whose published digest is `digest`; "" when nothing is, or none is published.
std::string fault_of(const fs::path& path, const std::string& digest) {
  if (digest.empty()) return "";
  const bool md5 = digest.starts_with("md5:");
  const std::string expected = digest.substr(digest.find(':') + 1);
  const std::string found = md5 ? digest_of<Md5>(path) : digest_of<Sha256>(path);
  if (found == expected) return "";
  return fmt::format("it has {} {}, and {} is published", md5 ? "MD5" : "SHA-256", found, expected);
}

// The files of a set that stay.
std::vector<DataFile> files_of(const DataSet& set) {
  std::vector<DataFile> files;
  for (const DataOrigin& origin : set.origins) {
    if (origin.packing == Packing::none)
      files.push_back({origin.file, origin.digest});
    else
      files.insert(files.end(), origin.members.begin(), origin.members.end());
  }
  return files;
}

std::vector<DataFile> files_of(const DataOrigin& origin) {
  if (origin.packing == Packing::none) return {{origin.file, origin.digest}};
  return origin.members;
}

bool are_there(const fs::path& folder, const std::vector<DataFile>& files) {
  std::error_code error;
  return std::all_of(files.begin(), files.end(),
                     [&](const DataFile& file) { return fs::is_regular_file(folder / file.name, error); });
}

std::string digest_line(const fs::path& folder, const std::string& name) {
  return fmt::format("{}  {}  {}\n", digest_of<Sha256>(folder / name), fs::file_size(folder / name), name);
}

// The lines of the file `digests`, by the name of the file; none where it is missing.
std::map<std::string, std::string> kept_digests(const fs::path& folder) {
  std::map<std::string, std::string> lines;
  std::error_code error;
  if (!fs::is_regular_file(folder / kDigests, error)) return lines;
  std::istringstream text(read_text_file(folder / kDigests));
  for (std::string line; std::getline(text, line);)
    if (const std::size_t name = line.find("  ", line.find("  ") + 2); name != std::string::npos)
      lines[line.substr(name + 2)] = line + "\n";
  return lines;
}

// Checks the files of a set: against what they were when they came or, for those of which nothing is kept, against what
// is published. Keeps what they are, where the folder is the cache's.
// errors: FormatError.
void check_files(const DataSet& set, const fs::path& folder, bool keeps) {
  const std::map<std::string, std::string> kept = kept_digests(folder);
  std::string digests;
  for (const DataFile& file : files_of(set)) {
    const auto known = kept.find(file.name);
    if (known == kept.end()) {
      if (const std::string fault = fault_of(folder / file.name, file.digest); !fault.empty())
        fail<FormatError>("data: {} is not the published file of {}: {} (remove it and repeat the command)",
                          (folder / file.name).string(), set.name, fault);
    }
    const std::string line = digest_line(folder, file.name);
    if (known != kept.end() && known->second != line)
      fail<FormatError>(
          "data: {} is not what it was when it came: the file {} says so (remove both, and the command fetches it again)",
          (folder / file.name).string(), (folder / kDigests).string());
    digests += line;
  }
  if (!keeps || std::ssize(kept) == std::ssize(files_of(set))) return;
  try {
    replace_text_file(folder / kDigests, digests);
  } catch (const IoError&) {  // a cache that cannot be written is read all the same
  }
}

// The lock on the folder of a set, so that two commands do not fetch it at once.
class FetchLock {
 public:
  FetchLock(const DataSet& set, const fs::path& folder, std::ostream& messages)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_.get() < 0 || ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    messages << "data: another process fetches " << set.name << ": waiting for it\n" << std::flush;
    while (::flock(folder_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }

 private:
  Descriptor folder_;
};

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail<IoError>("data: cannot create the folder {}: {} (name another by EDDY_CACHE_DIR)", folder.string(),
                  error.message());
}

// What has come of a file so far.
fs::path part_of(const DataOrigin& origin, const fs::path& folder) {
  return (folder / origin.file).string() + ".part";
}

// Removes what a killed process left, but for the files of the set that came in part.
void remove_left_parts(const DataSet& set, const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> parts;
  const auto goes_on = [&](const fs::path& part) {
    return fs::is_regular_file(part, error) &&
           std::any_of(set.origins.begin(), set.origins.end(),
                       [&](const DataOrigin& origin) { return part_of(origin, folder) == part; });
  };
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".part" && !goes_on(entry->path())) parts.push_back(entry->path());
  for (const fs::path& part : parts) fs::remove_all(part, error);
}

[[noreturn]] void fail_not_to_be_had(const DataSet& set, const DataOrigin& origin, const fs::path& folder,
                                     const std::string& why) {
  fail<IoError>(
      "data: {} is not in {} and could not be fetched: {} (fetch {} by hand, put it there as {}, and repeat the command)",
      set.name, folder.string(), why, origin.url, (folder / origin.file).string());
}

// Brings one file of a set to its place.
// errors: IoError, FormatError.
void fetch(const DataSet& set, const DataOrigin& origin, const fs::path& folder, const DataPlaces& places,
           std::ostream& messages) {
  const fs::path target = folder / origin.file, part = part_of(origin, folder);
  std::error_code error;
  make_folder(target.parent_path());
  if (fs::is_regular_file(target, error)) {  // put there by hand
    if (const std::string fault = fault_of(target, origin.digest); !fault.empty())
      fail<FormatError>("data: {} is not the published file of {}: {} (remove it and repeat the command)",
                        target.string(), set.name, fault);
    return;
  }
  const auto come = [&] {
    const std::uintmax_t bytes = fs::file_size(part, error);
    return error ? 0 : static_cast<std::int64_t>(bytes);
  };
  const std::int64_t before = come();
  messages << fmt::format("data: fetching {}, about {} MB, from {}{}\n", target.string(),
                          (origin.bytes + kMegabyte - 1) / kMegabyte, origin.url,
                          before > 0 ? fmt::format(", behind the {} bytes that are there", before) : "")
           << std::flush;
  const std::string why = places.fetch(origin.url, part.string());
  if (!why.empty() || !fs::is_regular_file(part, error))
    fail_not_to_be_had(set, origin, folder,
                       (why.empty() ? "nothing came" : why) +
                           (come() > 0 ? "; the next command goes on behind what came" : ""));
  if (const std::string fault = fault_of(part, origin.digest); !fault.empty()) {
    fs::remove(part, error);
    fail_not_to_be_had(set, origin, folder, "what came was not the published file, and is removed: " + fault);
  }
  fs::rename(part, target, error);
  if (error) fail<IoError>("data: cannot rename {}: {}", part.string(), error.message());
}

// Takes the files of an archive out of it, all or none of them.
// errors: IoError, FormatError.
void take_out(const DataOrigin& origin, const fs::path& folder, bool keeps_archive) {
  const fs::path archive = folder / origin.file, aside = archive.string() + ".unpacked.part";
  std::vector<std::string> names;
  for (const DataFile& member : origin.members) names.push_back(member.name);
  make_folder(aside);
  std::string fault = unpack(origin.packing, archive.string(), names, aside.string());
  if (fault.empty() && !are_there(aside, origin.members)) fault = "it lacks files of the set";
  for (const DataFile& member : origin.members)
    if (fault.empty())
      if (const std::string wrong = fault_of(aside / member.name, member.digest); !wrong.empty())
        fault = member.name + " in it is not the published file: " + wrong;
  std::error_code error;
  if (!fault.empty()) {
    fs::remove_all(aside, error);
    if (!keeps_archive) fs::remove(archive, error);
    fail<FormatError>("data: {} cannot be unpacked: {} (put {} into {} by hand, and repeat the command)",
                      archive.string(), fault, fmt::join(names, ", "), folder.string());
  }
  for (const std::string& name : names) {
    make_folder((folder / name).parent_path());
    fs::rename(aside / name, folder / name, error);
    if (error) fail<IoError>("data: cannot rename {}: {}", (aside / name).string(), error.message());
  }
  fs::remove_all(aside, error);
  if (!keeps_archive) fs::remove(archive, error);
}

}  // namespace

std::span<const DataSet> data_sets() {
  return kSets;
}

const DataSet* data_set_named(const std::string& path) {
  const auto found =
      std::find_if(kSets.begin(), kSets.end(), [&](const DataSet& set) { return set.name == path; });
  std::error_code error;
  return found == kSets.end() || fs::exists(path, error) ? nullptr : &*found;
}

DataPlaces DataPlaces::standard() {
  DataPlaces places;
  places.data_dir = environment("EDDY_DATA_DIR");
  const std::string own = environment("EDDY_CACHE_DIR"), cache = environment("XDG_CACHE_HOME"),
                    home = environment("HOME");
  // By the XDG base directory specification, relative values of XDG_CACHE_HOME are ignored.
  if (!own.empty())
    places.cache = own;
  else if (!cache.empty() && cache.front() == '/')
    places.cache = cache + "/eddy";
  else if (!home.empty())
    places.cache = home + "/.cache/eddy";
  return places;
}

std::string path_of_data_set(const DataSet& set, const DataPlaces& places, std::ostream& messages) {
  if (!places.data_dir.empty()) {
    const fs::path folder = fs::path(places.data_dir) / set.folder;
    if (are_there(folder, files_of(set))) {
      check_files(set, folder, false);
      return (folder / set.path).string();
    }
  }
  if (places.cache.empty())
    fail<IoError>(
        "data: there is no folder to keep {} in, as neither EDDY_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set (set one)",
        set.name);
  const fs::path folder = fs::path(places.cache) / set.folder;
  if (!are_there(folder, files_of(set))) {
    make_folder(folder);
    const FetchLock lock(set, folder, messages);
    remove_left_parts(set, folder);
    for (const DataOrigin& origin : set.origins) {
      if (are_there(folder, files_of(origin))) continue;
      std::error_code error;
      const bool by_hand = fs::exists(folder / origin.file, error);
      fetch(set, origin, folder, places, messages);
      if (origin.packing != Packing::none) take_out(origin, folder, by_hand);
    }
  }
  check_files(set, folder, true);
  return (folder / set.path).string();
}

std::string local_data(const std::string& path, std::ostream& messages) {
  const DataSet* const set = data_set_named(path);
  return set == nullptr ? path : path_of_data_set(*set, DataPlaces::standard(), messages);
}

}  // namespace eddy::training
