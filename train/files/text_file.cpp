// Whole-file reads by InputFile, replacement by AtomicFile.
#include "train/files/text_file.h"

#include "tensor/files/atomic_file.h"
#include "tensor/files/input_file.h"
#include "tensor/files/strict_json.h"

namespace eddy::training {

std::string read_text_file(const std::filesystem::path& path, std::int64_t most) {
  return InputFile(path).text(most);
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  return json_of_text(read_text_file(path), path.string());
}

void replace_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path.string());
  file.write(text.data(), std::ssize(text));
  file.commit();
}

}  // namespace eddy::training
