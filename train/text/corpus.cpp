// Reading text files and folders, splitting, random batches and validation windows.
#include "train/text/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/random/uniform_draw.h"

namespace eddy {
namespace {

namespace fs = std::filesystem;

bool looks_like_text(std::string_view bytes) {
  return bytes.substr(0, 4096).find('\0') == std::string_view::npos;
}

// Whether an entry of a folder is a regular, visible file.
bool is_visible_file(const fs::directory_entry& entry) {
  std::error_code unknown;  // a dangling link is not a regular file, and no reason to stop
  return entry.is_regular_file(unknown) && entry.path().filename().native().front() != '.';
}

// The regular, visible files of a folder, sorted by name: file systems list them in no fixed order.
std::vector<fs::path> files_of(const std::string& folder, bool recursive) {
  std::vector<fs::path> files;
  std::error_code error;
  if (recursive) {
    fs::recursive_directory_iterator entries(folder, error);
    for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
      std::error_code unknown;
      if (entries->is_directory(unknown) && entries->path().filename().native().front() == '.')
        entries.disable_recursion_pending();
      if (is_visible_file(*entries)) files.push_back(entries->path());
    }
  } else {
    fs::directory_iterator entries(folder, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error))
      if (is_visible_file(*entries)) files.push_back(entries->path());
  }
  if (error)
    fail<IoError>("data: cannot list the folder '{}': {} (check its rights)", folder, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

// The *.txt files of a folder that are not empty; without any *.txt, the other files that look like text.
TextFiles texts_of(const std::string& folder, bool recursive) {
  std::vector<fs::path> files = files_of(folder, recursive);
  const auto first_other = std::stable_partition(files.begin(), files.end(),
                                                 [](const fs::path& p) { return p.extension() == ".txt"; });
  const bool only_txt = first_other != files.begin();
  if (only_txt) files.erase(first_other, files.end());
  TextFiles texts;
  for (const fs::path& path : files) {
    const MappedFile file(path.string());
    if (file.bytes().empty())
      ++texts.empty;
    else if (only_txt || looks_like_text(file.bytes()))
      texts.files.push_back({path.lexically_relative(folder).generic_string(), path.string()});
  }
  return texts;
}

Text read_folder(const std::string& folder) {
  std::string text;
  for (const TextFile& part : texts_of(folder, false).files) {
    text += MappedFile(part.path).bytes();
    if (!text.empty() && text.back() != '\n') text.push_back('\n');
  }
  if (text.empty())
    fail<IoError>(
        "data: no text in the folder '{}' (put *.txt files directly into it, or name one file; subfolders "
        "are not searched)",
        folder);
  return Text(std::move(text));
}

// The status of the file or folder at a path.
// errors: IoError when there is none.
fs::file_status status_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    fail<IoError>(
        "data: no such file or folder: '{}' (check --data.path; it is taken from the working directory)",
        path);
  if (error)
    fail<IoError>("data: cannot look at '{}': {} (check the path and its rights)", path, error.message());
  return status;
}

MappedFile read_file(const std::string& path) {
  MappedFile file(path);
  if (file.bytes().empty()) fail<IoError>("data: the file '{}' is empty (name a file with text)", path);
  return file;
}

void check_sequence(const char* op, std::int64_t sequence) {
  if (sequence < 1) fail<ValueError>("{}: sequence must be at least 1: {}", op, sequence);
}

void copy_window(std::span<const std::int32_t> tokens, std::int64_t start, std::int64_t sequence,
                 std::int64_t row, std::int32_t* inputs, std::int32_t* targets) {
  const std::int32_t* from = tokens.data() + start;
  std::copy_n(from, sequence, inputs + row * sequence);
  std::copy_n(from + 1, sequence, targets + row * sequence);
}

}  // namespace

std::string_view Text::view() const {
  if (const auto* file = std::get_if<MappedFile>(&source_)) return file->bytes();
  return *std::get_if<std::string>(&source_);
}

Text read_text(const std::string& path) {
  if (fs::is_directory(status_of(path))) return read_folder(path);
  return Text(read_file(path));
}

TextFiles list_text_files(const std::string& path, bool subfolders) {
  if (!fs::is_directory(status_of(path))) {
    static_cast<void>(read_file(path));
    return {{{fs::path(path).filename().generic_string(), path}}};
  }
  TextFiles texts = texts_of(path, subfolders);
  if (texts.files.empty())
    fail<IoError>("data: no text in the folder '{}' and its subfolders (put *.txt files into it)", path);
  return texts;
}

std::optional<SplitFolder> find_splits(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const auto folder = [&](const char* name) {
    std::error_code error;
    const fs::path found = fs::path(path) / name;
    return fs::is_directory(found, error) ? found.string() : std::string();
  };
  SplitFolder splits{folder("train"), folder("valid"), folder("test")};
  if (splits.valid.empty()) splits.valid = folder("validation");
  if (splits.train.empty() || splits.valid.empty()) return std::nullopt;
  return splits;
}

std::int64_t training_part(std::int64_t length, double train_fraction, std::int64_t sequence) {
  check_sequence("corpus", sequence);
  if (!(train_fraction > 0.0 && train_fraction < 1.0))
    fail<ValueError>("corpus: the training fraction is {} (above 0 and below 1)", train_fraction);
  const auto train = static_cast<std::int64_t>(std::floor(train_fraction * static_cast<double>(length)));
  const std::int64_t valid = length - train;
  if (train <= sequence || valid <= sequence)
    fail<ValueError>(
        "corpus: too few tokens: {} for training and {} for validation, sequence {} (each split needs at "
        "least sequence + 1; take a longer text or a shorter sequence)",
        train, valid, sequence);
  return train;
}

void sample_batch(std::span<const std::int32_t> tokens, std::uint64_t seed, std::uint64_t step,
                  std::uint64_t micro, std::int64_t batch, std::int64_t sequence, std::int32_t* inputs,
                  std::int32_t* targets) {
  check_sequence("sample_batch", sequence);
  if (batch < 1) fail<ValueError>("sample_batch: batch must be at least 1: {}", batch);
  const auto length = std::ssize(tokens);
  if (length <= sequence)
    fail<ValueError>("sample_batch: too few tokens: {}, sequence {} (at least sequence + 1 are needed)",
                     length, sequence);

  const RandomKey key = random_key(seed, "data.train", step);
  const auto starts = static_cast<std::uint64_t>(length - sequence);
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::uint64_t draw = micro * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    const auto start = static_cast<std::int64_t>(uniform_below(key, draw, starts));
    copy_window(tokens, start, sequence, row, inputs, targets);
  }
}

std::int64_t window_count(std::int64_t tokens, std::int64_t sequence) {
  check_sequence("window_count", sequence);
  return tokens < 1 ? 0 : (tokens - 1) / sequence;
}

void read_windows(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t first,
                  std::int64_t windows, std::int32_t* inputs, std::int32_t* targets) {
  const std::int64_t count = window_count(std::ssize(tokens), sequence);
  if (first < 0 || windows < 0 || first > count || windows > count - first)
    fail<ValueError>("read_windows: outside the text: windows {} from {} on, of {} (sequence {})", windows,
                     first, count, sequence);
  for (std::int64_t row = 0; row < windows; ++row)
    copy_window(tokens, (first + row) * sequence, sequence, row, inputs, targets);
}

}  // namespace eddy
