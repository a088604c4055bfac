// Looks at what stands where a file is to be written, and refuses to replace what Eddy did not write.
#include "train/files/output_file.h"

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "train/files/text_file.h"

namespace eddy::training {
namespace {

bool is_page(const std::string& path) {
  std::string head(kPageHead.size(), '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), std::ssize(head));
  return head == kPageHead;
}

}  // namespace

const OutputKind kPageFile{"a page of Eddy's", is_page};

void refuse_foreign_file(const std::string& where, const std::string& file, const OutputKind& kind) {
  namespace fs = std::filesystem;
  if (const std::string why = why_not_writable(file); !why.empty())
    fail<IoError>("{}: cannot write {}: {}", where, file, why);
  std::error_code error;  // where nothing is, or nothing can be examined: writing says more
  const auto bytes = fs::file_size(file, error);
  if (error || bytes == 0) return;
  bool own = false;
  try {
    own = kind.is_one(file);
  } catch (const std::exception&) {  // what cannot be read is nothing of Eddy's
  }
  if (kind.is_one == kNewFile.is_one) fail<IoError>("{}: {} exists (choose another name)", where, file);
  if (!own)
    fail<IoError>(
        "{}: {} exists and is not {} (only such a file is overwritten: name another file, or remove this one)",
        where, file, kind.name);
}

void write_output_file(const std::string& where, const std::string& file, std::string_view text,
                       const OutputKind& kind) {
  refuse_foreign_file(where, file, kind);
  replace_text_file(file, text);
}

}  // namespace eddy::training
