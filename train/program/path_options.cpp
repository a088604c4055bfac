// Options that name files.
#include "train/program/path_options.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tensor/format.h"

namespace eddy {
namespace {

constexpr std::string_view kPageHead = "<!DOCTYPE HTML";

}  // namespace

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

void check_page_output(const char* where, const std::string& file) {
  check_output(where, file);
  std::ifstream old(file, std::ios::binary);
  std::string head(kPageHead.size(), '\0');
  old.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(old.gcount()));
  const auto same = [](char a, char b) { return a == std::toupper(static_cast<unsigned char>(b)); };
  if (!head.empty() && !std::equal(kPageHead.begin(), kPageHead.end(), head.begin(), head.end(), same))
    fail<IoError>("{}: {} exists and is no page of HTML (a page replaces nothing else: name another file)",
                  where, file);
}

}  // namespace eddy
