// Options of several commands.
#include "train/program/commands.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "tensor/files/strict_json.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"
#include "train/run/run_folder.h"

namespace eddy {
namespace {

constexpr std::string_view kPageHead = "<!DOCTYPE HTML";

template <class Number>
bool read(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

CLI::Validator seed_number() {
  return {[](std::string& text) {
            std::uint64_t value = 0;
            return read(text, value) ? std::string()
                                     : fmt::format("{:?} is no whole number from 0 to 2^64 - 1", text);
          },
          ""};
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  return CLI::Range(low, high).description("");
}

CLI::Validator number_between(double low, double high) {
  return {[low, high](std::string& text) {
            double value = 0;
            const bool good = read(text, value) && value >= low && value <= high;
            return good ? std::string() : fmt::format("{:?} is no number from {} to {}", text, low, high);
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](std::string& value) { return value.empty() ? std::string("the name is empty") : std::string(); },
          ""};
}

void add_checkpoint_option(CLI::App& command, std::string& which, const std::string& help) {
  const auto check = [](std::string& name) {
    return is_checkpoint_name(name) ? std::string()
                                    : fmt::format("{} is not latest, best, newest-whole or step-N", name);
  };
  add_option(command, "--checkpoint", which,
             (help + ": latest, best, step-N, or newest-whole (the newest undamaged one)").c_str(),
             CLI::Validator(check, ""));
}

void add_precision_option(CLI::App& command, std::string& precision) {
  add_option(command, "--precision", precision,
             "Arithmetic; on the CPU bf16 needs AVX512-BF16 or AMX to be fast",
             CLI::IsMember({"f32", "bf16", "tf32", "f64"}));
}

void add_device_option(CLI::App& command, std::string& device) {
  add_option(command, "--device", device, "Where to compute", CLI::IsMember({"cpu", "cuda"}));
}

LoadedRun load_run(const char* command, const RunOptions& options) {
  const auto [device, dtype] =
      choose_device_precision({command, "--device", "--precision"}, options.device, options.precision);
  return load_run(options.path, dtype, options.checkpoint, device);
}

LoadedRun load_text_run(const char* command, const RunOptions& options, const char* end) {
  LoadedRun run = load_run(command, options);
  if (!run.tokenizer)
    fail<ValueError>("{}: {} was trained on the task {}, which has no text{}", command, options.path,
                     run.config.data.name, end);
  return run;
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
    fail<IoError>("{}: cannot write {}: {} is not writable (choose another folder)", where, file,
                  folder.string());
}

void check_page_output(const char* where, const std::string& file) {
  check_output(where, file);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return;
  const InputFile old(file);
  std::string head(static_cast<std::size_t>(std::min(std::ssize(kPageHead), old.bytes())), '\0');
  old.read(0, head.data(), std::ssize(head));
  const auto same = [](char a, char b) { return a == std::toupper(static_cast<unsigned char>(b)); };
  if (!head.empty() && !std::equal(kPageHead.begin(), kPageHead.end(), head.begin(), head.end(), same))
    fail<IoError>(
        "{}: {} exists and is not an HTML page (only an HTML page is overwritten: name another file)", where,
        file);
}

void check_bench_output(const char* where, const std::string& file) {
  check_output(where, file);
  std::error_code error;
  if (!std::filesystem::exists(file, error) || std::filesystem::is_empty(file, error)) return;
  bool is_bench = false;
  if (std::filesystem::is_regular_file(file, error)) {
    const nlohmann::json old = parse_strict_json(read_text_file(file)).value;
    is_bench = old.is_object() && old.contains("bench") && old.contains("environment");
  }
  if (!is_bench)
    fail<IoError>(
        "{}: {} exists and has no numbers of a benchmark (only such a file is overwritten: name another file)",
        where, file);
}

}  // namespace eddy
