// Whole-file reads by InputFile, replacement by AtomicFile.
#include "train/files/text_file.h"

#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/input_file.h"
#include "tensor/files/strict_json.h"
#include "train/files/digest.h"

namespace eddy::training {
namespace {

constexpr const char *kFormatKey = "format", *kDigestKey = "digest";

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

void check_format(const nlohmann::json& object, const std::string& file, int format) {
  const auto found = object.find(kFormatKey);  // the end of what is no object
  if (found != object.end() && *found == format) return;
  fail<FormatError>("{} has {}, and this program reads {}: take the program that wrote it", file,
                    found == object.end() ? "no format" : "format " + found->dump(), format);
}

std::string text_with_digest(nlohmann::json object, int format) {
  object.erase(kDigestKey);
  object[kFormatKey] = format;
  object[kDigestKey] = digest_of_json(object);
  return object.dump(1) + "\n";
}

nlohmann::json read_json_with_digest(const std::filesystem::path& path, int format) {
  nlohmann::json object = read_json_file(path);
  check_format(object, path.string(), format);
  const nlohmann::json wanted = object.value(kDigestKey, nlohmann::json());
  object.erase(kDigestKey);
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
