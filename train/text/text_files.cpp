// Walking a folder, and the reasons why a file is no text.
#include "train/text/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "train/files/text_encoding.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;
using FolderId = std::pair<dev_t, ino_t>;

constexpr std::int64_t kHead = 4096;  // bytes that show what a file is

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

std::string head_of(const fs::path& path) {
  const InputFile file(path);
  std::string head(static_cast<std::size_t>(std::min(file.bytes(), kHead)), '\0');
  file.read(0, head.data(), std::ssize(head));
  return head;
}

// ".txt" of "A.TXT".
std::string lower_ending(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return ending;
}

bool is_named_text(const fs::path& path) {
  const std::string ending = lower_ending(path);
  return ending == ".txt" || ending == ".text" || ending == ".md" || ending == ".markdown";
}

// A kind of file that holds no plain text, and how to get at one.
struct NoText {
  std::string kind, way_out;
};

// What a file is that begins so, if it is no text by its first bytes. A zip file of a document is named for that.
std::optional<NoText> no_text(std::string_view head, const fs::path& path) {
  using namespace std::string_view_literals;
  constexpr const char *kUnpack = "unpack it", *kSave = "save it as plain text in UTF-8",
                       *kImage = "a picture has no text; --data.name cifar10 reads its own files";
  struct Beginning {
    std::string_view bytes;
    const char *kind, *way_out;
  };
  static constexpr std::array<Beginning, 15> kBeginnings{
      {{"%PDF"sv, "PDF", "take out its text: pdftotext"},
       {"\x1f\x8b"sv, "gzip", kUnpack},
       {"\xfd\x37zXZ"sv, "xz", kUnpack},
       {"BZh"sv, "bzip2", kUnpack},
       {"\x28\xb5\x2f\xfd"sv, "zstd", kUnpack},
       {"7z\xbc\xaf\x27\x1c"sv, "7z", kUnpack},
       {"Rar!\x1a\x07"sv, "RAR", kUnpack},
       {"{\\rtf"sv, "RTF", kSave},
       {"\xd0\xcf\x11\xe0"sv, "an old office document", kSave},
       {"\x89PNG\r\n"sv, "PNG image", kImage},
       {"\xff\xd8\xff"sv, "JPEG image", kImage},
       {"GIF87a"sv, "GIF image", kImage},
       {"GIF89a"sv, "GIF image", kImage},
       {"II*\0"sv, "TIFF image", kImage},
       {"MM\0*"sv, "TIFF image", kImage}}};
  for (const Beginning& known : kBeginnings)
    if (head.starts_with(known.bytes)) return NoText{known.kind, known.way_out};
  if (head.starts_with("RIFF") && head.substr(std::min<std::size_t>(8, head.size())).starts_with("WEBP"))
    return NoText{"WebP image", kImage};
  if (head.starts_with("BM") && head.substr(std::min<std::size_t>(6, head.size())).starts_with("\0\0\0\0"sv))
    return NoText{"BMP image", kImage};
  if (!head.starts_with("PK\3\4")) return std::nullopt;
  const std::string ending = lower_ending(path);
  for (const char* document : {"docx", "xlsx", "pptx", "odt", "ods", "odp", "epub"})
    if (ending == std::string(".") + document) {
      std::string kind = document;
      std::transform(kind.begin(), kind.end(), kind.begin(),
                     [](char c) { return static_cast<char>(c - 32); });
      return NoText{kind, kSave};
    }
  return NoText{"ZIP", kUnpack};
}

// Why a file with this beginning is no text to read; "" when it is one.
std::string why_no_text(std::string_view head, const fs::path& path, bool named_text) {
  const TextEncoding encoding = encoding_of(head);
  if (head.size() == encoding.mark) return "empty";
  if (const std::optional<NoText> what = no_text(head, path)) return what->kind;
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

TextFiles texts_of(const std::string& folder, DocumentUnit unit) {
  Walk walk(folder);
  struct Candidate {
    fs::path path;
    bool named;
    std::string why, encoding;
  };
  std::vector<Candidate> candidates;
  bool only_named = false;
  for (const fs::path& path : walk.files()) {
    const bool named = is_named_text(path);
    const std::string head = head_of(path);
    candidates.push_back({path, named, why_no_text(head, path, named), encoding_to_name(head)});
    only_named = only_named || (unit == DocumentUnit::file && named && candidates.back().why.empty());
  }
  TextFiles texts{{}, walk.take_left_out(), true};
  for (const Candidate& candidate : candidates) {
    const std::string name = walk.name_of(candidate.path);
    const bool other = only_named && !candidate.named;
    if (candidate.why.empty() && !other)
      texts.files.push_back({name, candidate.path.string(), candidate.encoding});
    else
      texts.left_out.push_back({name, candidate.why.empty() ? "not .txt or .md" : candidate.why});
  }
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
            ? "nothing replaced the ~, which a shell does at the beginning of an unquoted word alone: write the whole path"
            : "check the path; it is taken from the working directory");
  if (error)
    fail<IoError>("data: cannot look at '{}': {} (check the path and its rights)", path, error.message());
  return status;
}

TextFiles one_file(const std::string& path) {
  const std::string head = head_of(path);
  if (head.size() == encoding_of(head).mark)
    fail<IoError>("data: the file '{}' is empty (name a file with text)", path);
  if (const std::optional<NoText> what = no_text(head, path))
    fail<FormatError>("data: the file '{}' is no text but: {} ({})", path, what->kind, what->way_out);
  return {{{fs::path(path).filename().generic_string(), path, encoding_to_name(head)}}, {}, false};
}

TextFiles not_empty(TextFiles texts, const std::string& folder) {
  if (texts.files.empty())
    fail<IoError>("data: no text in the folder '{}' and its subfolders (put *.txt files into it){}", folder,
                  describe_left_out(texts));
  return texts;
}

}  // namespace

TextFiles list_text_files(const std::string& path, DocumentUnit unit) {
  if (!fs::is_directory(status_of(path))) return one_file(path);
  return not_empty(texts_of(path, unit), path);
}

std::vector<TextFile> single_files(const std::vector<TextFile>& texts) {
  std::vector<TextFile> files;
  for (const TextFile& text : texts) {
    if (text.joined.empty()) files.push_back(text);
    files.insert(files.end(), text.joined.begin(), text.joined.end());
  }
  return files;
}

std::string text_of(const TextFile& file) {
  if (!file.joined.empty()) return text_of(TextFiles{file.joined, {}, true});
  return decode_text(InputFile(file.path).text(), file.path);
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
