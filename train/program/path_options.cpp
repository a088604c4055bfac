// Checks of options that name files.
#include "train/program/path_options.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tensor/base/format.h"
#include "train/files/text_file.h"
#include "train/run/run_folder.h"

namespace eddy {
namespace {

constexpr std::string_view kPageHead = "<!DOCTYPE HTML";

}  // namespace

CLI::Validator not_empty() {
  return {[](std::string& value) { return value.empty() ? std::string("the name is empty") : std::string(); },
          ""};
}

void add_checkpoint_option(CLI::App& command, std::string& which, const std::string& help) {
  const auto check = [](std::string& name) {
    return is_checkpoint_name(name) ? std::string()
                                    : fmt::format("{} is not latest, best, newest-whole or step-N", name);
  };
  command
      .add_option("--checkpoint", which,
                  help + ": latest, best, step-N, or newest-whole, the newest with nothing damaged")
      ->check(CLI::Validator(check, ""))
      ->capture_default_str();
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

void check_bench_output(const char* where, const std::string& file) {
  check_output(where, file);
  std::error_code error;
  if (!std::filesystem::exists(file, error) || std::filesystem::is_empty(file, error)) return;
  bool is_bench = false;
  if (std::filesystem::is_regular_file(file, error)) {
    const nlohmann::json old = nlohmann::json::parse(read_text_file(file), nullptr, false);
    is_bench = old.is_object() && old.contains("bench") && old.contains("environment");
  }
  if (!is_bench)
    fail<IoError>(
        "{}: {} exists and holds no numbers of a benchmark (they replace nothing else: name another file)",
        where, file);
}

}  // namespace eddy
