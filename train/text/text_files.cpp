// Walking a folder, and the reasons why a file is no text.
#include "train/text/text_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "train/files/file_kind.h"
#include "train/files/standard_input.h"
#include "train/files/text_encoding.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;
using FolderId = std::pair<dev_t, ino_t>;

bool is_hidden(const fs::path& path) {
  return path.filename().native().front() == '.';
}

[[noreturn]] void cannot_list(const fs::path& folder, const std::error_code& error) {
  fail<IoError>("data: cannot list the folder '{}': {} (check its rights)", folder.string(), error.message());
}

// A folder with its subfolders.
class Walk {
 public:
  explicit Walk(const fs::path& root) : root_(root) {
    read(root);
    // Links come last, so that the folders in the tree itself keep their names.
    for (; !links_.empty(); links_.pop_front()) read(links_.front());
    std::sort(files_.begin(), files_.end());  // file systems list them in no fixed order
  }
  const std::vector<fs::path>& files() const { return files_; }
  std::string name_of(const fs::path& path) const { return path.lexically_relative(root_).generic_string(); }
  std::vector<LeftOut> take_left_out() { return std::move(left_out_); }

 private:
  void read(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0)
      cannot_list(folder, std::error_code(errno, std::generic_category()));
    const auto [first, is_new] = read_.try_emplace(FolderId{status.st_dev, status.st_ino}, folder);
    if (!is_new) {
      left_out_.push_back({name_of(folder) + "/", "the folder " + name_of(first->second) + " again"});
      return;
    }
    std::vector<fs::directory_entry> entries;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      entries.push_back(*entry);
    if (error && folder == root_) cannot_list(folder, error);
    if (error) return left_out_.push_back({name_of(folder) + "/", error.message()});
    if (fs::is_directory(folder / "checkpoints", error) && fs::exists(folder / "config.json", error))
      return left_out_.push_back({name_of(folder) + "/", "a run"});
    std::sort(entries.begin(), entries.end());
    for (const fs::directory_entry& entry : entries) take(entry);
  }
  void take(const fs::directory_entry& entry) {
    std::error_code unknown;
    const fs::path& path = entry.path();
    const bool folder = entry.is_directory(unknown);
    const auto leave_out = [&](const char* why) {
      left_out_.push_back({name_of(path) + (folder ? "/" : ""), why});
    };
    if (is_hidden(path)) return leave_out("hidden");
    if (folder && entry.is_symlink(unknown)) return links_.push_back(path);
    if (folder) return read(path);
    if (entry.is_regular_file(unknown)) {
      files_.push_back(path);
    } else {
      leave_out(entry.is_symlink(unknown) && !entry.exists(unknown) ? "a link to nothing"
                                                                    : "no regular file");
    }
  }

  fs::path root_;
  std::map<FolderId, fs::path> read_;
  std::deque<fs::path> links_;
  std::vector<fs::path> files_;
  std::vector<LeftOut> left_out_;
};

bool is_input(const std::string& path) {
  return path == kStandardInput;
}

std::string head_of(const fs::path& path) {
  if (is_input(path.string())) return standard_input().substr(0, kKindBytes);
  const InputFile file(path);
  std::string head(std::min(static_cast<std::size_t>(file.bytes()), kKindBytes), '\0');
  file.read(0, head.data(), std::ssize(head));
  return head;
}

bool is_named_text(const fs::path& path, bool json_lines) {
  const std::string ending = lower_ending(path);
  return ending == ".txt" || ending == ".text" || ending == ".md" || ending == ".markdown" ||
         (json_lines && (ending == ".jsonl" || ending == ".ndjson"));
}

// Why a file with this beginning is no text to read; "" when it is one.
std::string why_no_text(std::string_view head, const fs::path& path, bool named_text) {
  const TextEncoding encoding = encoding_of(head);
  if (head.size() == encoding.mark) return "empty";
  if (const std::optional<NoText> what = no_text(head, path.string())) return what->kind;
  if (encoding.unit > 1)
    return encoding.mark > 0 ? "" : fmt::format("{} without a byte order mark", encoding.name);
  return !named_text && head.find('\0') != std::string_view::npos ? "binary" : "";
}

// The encoding to name for a file: "" for UTF-8.
std::string encoding_to_name(std::string_view head) {
  const TextEncoding encoding = encoding_of(head);
  return encoding.unit > 1 ? encoding.name : "";
}

// The files as documents: those of each subfolder joined. They are sorted by their paths, so those of one follow one
// another.
std::vector<TextFile> join_folders(std::vector<TextFile> files, const std::string& folder) {
  std::vector<TextFile> documents;
  for (TextFile& file : files) {
    const std::size_t slash = file.name.find('/');
    if (slash == std::string::npos) {
      documents.push_back(std::move(file));
      continue;
    }
    const std::string name = file.name.substr(0, slash);
    if (documents.empty() || documents.back().joined.empty() || documents.back().name != name)
      documents.push_back({name, (fs::path(folder) / name).string()});
    documents.back().joined.push_back(std::move(file));
  }
  return documents;
}

// Refuses files that are to be read and cannot be, of all that were looked at:
// those of a folder, or the paths that were named.
[[noreturn]] void cannot_read(const std::vector<std::string>& paths, std::size_t all, bool of_folder) {
  constexpr std::size_t kShown = 8;
  std::string named;
  for (std::size_t i = 0; i < std::min(kShown, paths.size()); ++i) {
    const bool refused = ::access(paths[i].c_str(), R_OK) != 0;
    named += fmt::format("{}'{}'{}", i == 0 ? "" : ", ", printable(paths[i]),
                         refused ? ": " + std::generic_category().message(errno) : "");
  }
  if (paths.size() > kShown) named += fmt::format(" and {} more", paths.size() - kShown);
  const std::string them = paths.size() == 1 ? "it" : "them";
  fail<IoError>("data: {} of {} {} cannot be read: {} (give yourself the right to read {}, or {})",
                paths.size(), all, plural(all, "file"), named, them,
                of_folder ? "move " + them + " elsewhere" : "name the others alone");
}

TextFiles texts_of(const std::string& folder, DocumentUnit unit, bool json_lines) {
  Walk walk(folder);
  struct Candidate {
    fs::path path;
    bool named;
    std::string why, encoding;
    bool readable = true;
  };
  std::vector<Candidate> candidates;
  bool only_named = false;
  for (const fs::path& path : walk.files()) {
    Candidate candidate{path, is_named_text(path, json_lines), "", ""};
    try {
      const std::string head = head_of(path);
      candidate.why = why_no_text(head, path, candidate.named);
      candidate.encoding = encoding_to_name(head);
    } catch (const IoError&) {
      candidate.readable = false;
      candidate.why = "cannot be read";
    }
    only_named = only_named || (unit == DocumentUnit::file && candidate.named &&
                                (candidate.why.empty() || !candidate.readable));
    candidates.push_back(std::move(candidate));
  }
  TextFiles texts{{}, walk.take_left_out(), true};
  std::vector<std::string> refused;
  for (const Candidate& candidate : candidates) {
    const std::string name = walk.name_of(candidate.path);
    const bool other = only_named && !candidate.named;
    if (!candidate.readable && !other) refused.push_back(candidate.path.string());
    const bool lines = other && is_named_text(candidate.path, true);
    texts.other_endings = texts.other_endings || (other && !lines && candidate.why.empty());
    if (candidate.why.empty() && !other)
      texts.files.push_back({name, candidate.path.string(), candidate.encoding});
    else
      texts.left_out.push_back({name, !candidate.why.empty() ? candidate.why
                                      : lines                ? "lines of JSON, which data.json_field reads"
                                                             : "not .txt or .md"});
  }
  if (!refused.empty()) cannot_read(refused, candidates.size(), /*of_folder=*/true);
  if (unit == DocumentUnit::folder) texts.files = join_folders(std::move(texts.files), folder);
  return texts;
}

// The status of the file or folder at a path.
// errors: IoError when there is none.
fs::file_status status_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    fail<IoError>(
        "data: no such file or folder: '{}' ({})", path,
        path.starts_with('~')
            ? std::string(
                  "nothing replaced the ~, which a shell does at the beginning of an unquoted word alone: write the whole path")
        : path.find("://") != std::string::npos
            ? std::string("an address is not read: fetch the file first, for example by curl -LO")
        : path.find(',') != std::string::npos
            ? std::string("check the path; several are named one after another, with blanks between them")
        : fs::path(path).is_absolute()
            ? "check the path"
            : fmt::format("check the path; it is taken from the working directory, {}",
                          fs::current_path(error).string()));
  if (fs::is_fifo(status) || fs::is_socket(status) || fs::is_character_file(status))
    fail<IoError>(
        "data: '{}' is not a regular file but a pipe or a device, and a text is read more than once (--data - reads "
        "standard input and keeps it: COMMAND | {} train --data - ...)",
        path, program_name());
  if (error)
    fail<IoError>("data: cannot look at '{}': {} (check the path and its rights)", path, error.message());
  return status;
}

std::string name_of_file(const std::string& path) {
  return is_input(path) ? kInputName : fs::path(path).filename().generic_string();
}

TextFiles one_file(const std::string& path) {
  const std::string head = head_of(path);
  const std::string named = is_input(path) ? kInputName : fmt::format("the file '{}'", path);
  if (head.size() == encoding_of(head).mark)
    fail<IoError>("data: {} is empty (name a file with text)", named);
  if (const std::optional<NoText> what = no_text(head, path))
    fail<FormatError>("data: {} is no text but: {} ({})", named, what->kind, what->way_out);
  return {{{name_of_file(path), path, encoding_to_name(head)}}, {}, false};
}

TextFiles not_empty(TextFiles texts, const std::string& folder) {
  if (texts.files.empty())
    fail<IoError>("data: no text in the folder '{}' and its subfolders (put *.txt files into it){}", folder,
                  describe_left_out(texts));
  return texts;
}

}  // namespace

TextFiles list_text_files(const DataPaths& paths, DocumentUnit unit, bool json_lines) {
  const auto list = [&](const std::string& path) {
    if (is_input(path) || !fs::is_directory(status_of(path))) return one_file(path);
    return not_empty(texts_of(path, unit, json_lines), path);
  };
  if (paths.size() == 1) return list(paths.front());
  TextFiles all{{}, {}, true};
  std::set<fs::path> read;
  std::vector<std::string> refused;
  for (const std::string& path : paths) {
    const bool folder = !is_input(path) && fs::is_directory(status_of(path));
    const std::string prefix = folder ? (fs::path(path) / "").generic_string() : "";
    TextFiles found;
    if (folder) {
      found = texts_of(path, unit, json_lines);
    } else {
      std::string head;
      try {
        head = head_of(path);
      } catch (const IoError&) {
        if (is_input(path)) throw;
        refused.push_back(path);
        continue;
      }
      const std::string why = why_no_text(head, path, true);
      if (why.empty())
        found.files.push_back({name_of_file(path), path, encoding_to_name(head)});
      else
        found.left_out.push_back({path, why});
    }
    for (TextFile& file : found.files) {
      file.name = folder ? prefix + file.name : is_input(path) ? file.name : path;
      std::error_code error;
      const fs::path place = is_input(path) ? fs::path(path) : fs::weakly_canonical(file.path, error);
      if (read.insert(place).second)
        all.files.push_back(std::move(file));
      else
        all.left_out.push_back({file.name, "named twice"});
    }
    for (const LeftOut& file : found.left_out) all.left_out.push_back({prefix + file.name, file.why});
    all.other_endings = all.other_endings || found.other_endings;
  }
  if (!refused.empty()) cannot_read(refused, paths.size(), /*of_folder=*/false);
  if (all.files.empty())
    fail<IoError>("data: no text in {} (name files with text){}", paths.text(), describe_left_out(all));
  return all;
}

std::vector<TextFile> single_files(const std::vector<TextFile>& texts) {
  std::vector<TextFile> files;
  for (const TextFile& text : texts) {
    if (text.joined.empty()) files.push_back(text);
    files.insert(files.end(), text.joined.begin(), text.joined.end());
  }
  return files;
}

std::string shown_path(const TextFile& file) {
  return is_input(file.path) ? kInputName : file.path;
}

std::string bytes_of(const TextFile& file) {
  return is_input(file.path) ? standard_input() : InputFile(file.path).text();
}

std::string text_of(const TextFile& file) {
  if (!file.joined.empty()) return text_of(TextFiles{file.joined, {}, true});
  return decode_text(bytes_of(file), shown_path(file));
}

std::string text_of(const TextFiles& texts) {
  std::string text;
  for (const TextFile& file : texts.files) {
    std::string part = text_of(file);
    if (text.empty())
      text = std::move(part);  // one large file is not copied
    else
      text += part;
    if (texts.folder && !text.empty() && text.back() != '\n') text.push_back('\n');
  }
  return text;
}

std::string read_text(const std::string& path) {
  return text_of(list_text_files(path));
}

std::string describe_read(const TextFiles& texts, std::int64_t bytes) {
  std::map<std::string, int> others;
  for (const TextFile& file : single_files(texts.files))
    if (!file.encoding.empty()) ++others[file.encoding];
  const std::size_t read = single_files(texts.files).size(), all = read + texts.left_out.size();
  std::string text;
  if (read > texts.files.size())
    text = fmt::format("{} {} of ", texts.files.size(), plural(texts.files.size(), "document"));
  if (texts.folder)
    text +=
        fmt::format("{} {}{} ", all, plural(all, "file"), all > read ? fmt::format(": {} read", read) : "");
  text += "(" + decimal_bytes(bytes);
  if (texts.all_utf8) text += ", UTF-8";
  for (const auto& [name, count] : others)
    text += texts.folder ? fmt::format(", {} from {}", count, name) : ", from " + name;
  return text + ")";
}

std::string describe_left_out(const TextFiles& texts) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, texts.left_out.size()); ++i)
    text += fmt::format("{}{} ({})", i == 0 ? ", left out: " : ", ", printable(texts.left_out[i].name),
                        printable(texts.left_out[i].why));
  if (texts.left_out.size() > kShown) text += fmt::format(" and {} more", texts.left_out.size() - kShown);
  return text;
}

bool lacks_validation(const std::string& path) {
  std::error_code error;
  return !path.empty() && !find_splits(path) && fs::is_directory(fs::path(path) / "train", error) &&
         fs::is_directory(fs::path(path) / "test", error);
}

std::optional<SplitFolder> find_splits(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const auto folder = [&](const char* name) {
    std::error_code error;
    const fs::path found = fs::path(path) / name;
    return fs::is_directory(found, error) ? found.string() : std::string();
  };
  SplitFolder splits{folder("train"), folder("valid"), folder("test")};
  for (const char* const other : {"validation", "val", "dev"})
    if (splits.valid.empty()) splits.valid = folder(other);
  if (splits.train.empty() || splits.valid.empty()) return std::nullopt;
  return splits;
}

}  // namespace eddy::training
