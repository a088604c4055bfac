// Options that name files.
#include "train/program/path_options.h"

#include <unistd.h>

#include <filesystem>

#include "tensor/format.h"

namespace eddy {

CLI::Validator not_empty() {
  return {[](std::string& value) { return value.empty() ? std::string("the name is empty") : std::string(); },
          ""};
}

void check_output(const char* where, const std::string& file) {
  namespace fs = std::filesystem;
  const fs::path path(file), parent = path.parent_path(), folder = parent.empty() ? fs::path(".") : parent;
  std::error_code error;
  if (fs::is_directory(path, error))
    fail<IoError>("{}: cannot write {}: it is a folder (name a file)", where, file);
  if (!fs::is_directory(folder, error))
    fail<IoError>("{}: cannot write {}: {} is not a folder (make it first)", where, file, folder.string());
  if (::access(folder.c_str(), W_OK) != 0)
    fail<IoError>("{}: cannot write {}: {} takes no new files (choose another folder)", where, file,
                  folder.string());
}

}  // namespace eddy
