// mkdir and fsync of folders (POSIX).
#include "train/files/folders.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/system/files.h"

namespace eddy::training {

namespace fs = std::filesystem;

void make_folders(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return;
  make_folders(folder.parent_path());
  const bool made = fs::create_directory(folder, error);
  if (error == std::errc::file_exists)
    fail<IoError>("folder: {} cannot be made: it is there, and is no folder (choose another name)",
                  folder.string());
  if (error) fail<IoError>("folder: {} cannot be made: {}", folder.string(), error.message());
  if (made) flush_folder(folder.has_parent_path() ? folder.parent_path() : ".");
}

void flush_folder(const fs::path& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0 && errno == EACCES) return;
  if (file.get() < 0) fail<IoError>("folder: cannot open {}: {}", folder.string(), std::strerror(errno));
  if (sync_file(file.get()) != 0 && errno != EINVAL)
    fail<IoError>("folder: cannot flush {}: {}", folder.string(), std::strerror(errno));
}

std::string set_aside(const fs::path& path) {
  std::error_code error;
  std::string aside = path.string() + ".aside";
  for (int i = 1; fs::exists(fs::symlink_status(aside, error)); ++i)
    aside = fmt::format("{}.aside-{}", path.string(), i);
  fs::rename(path, aside, error);
  return error ? "" : aside;
}

}  // namespace eddy::training
