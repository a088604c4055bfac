// Whole-file reads by InputFile, replacement by AtomicFile.
#include "train/files/text_file.h"

#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/input_file.h"
#include "tensor/files/strict_json.h"
#include "train/files/digest.h"

namespace eddy::training {
namespace {

constexpr const char* kDigestKey = "digest";

std::string digest_of_json(const nlohmann::json& value) {
  Digest digest;
  digest.update(value.dump());
  return digest.hex();
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::int64_t most) {
  return InputFile(path).text(most);
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  return json_of_text(read_text_file(path), path.string());
}

std::string text_with_digest(nlohmann::json object) {
  object.erase(kDigestKey);
  object[kDigestKey] = digest_of_json(object);
  return object.dump(1) + "\n";
}

nlohmann::json read_json_with_digest(const std::filesystem::path& path) {
  nlohmann::json object = read_json_file(path);
  const nlohmann::json wanted =
      object.is_object() ? object.value(kDigestKey, nlohmann::json()) : nlohmann::json();
  if (object.is_object()) object.erase(kDigestKey);
  if (const std::string found = digest_of_json(object); wanted != found)
    fail<FormatError>("{} is not what was written: its digest is {}, and it says {}", path.string(), found,
                      wanted.dump());
  return object;
}

void replace_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path.string());
  file.write(text.data(), std::ssize(text));
  file.commit();
}

}  // namespace eddy::training
