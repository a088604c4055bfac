// Options of several commands, and the command line written out again, for reports.
#include "train/app/program/commands.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "tensor/files/atomic_file.h"
#include "train/app/launch/team.h"
#include "train/config/config_file.h"
#include "train/config/new_config.h"
#include "train/config/run_config.h"
#include "train/fetch/named_data.h"
#include "train/plan/machine_memory.h"
#include "train/run/run_folder.h"
#include "train/text/dataset.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

// Returns the options given to one app, with their values.
std::string given_options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const bool is_flag = option->get_expected_max() == 0;
    if (!option->get_lnames().empty()) text += " --" + option->get_lnames().front();
    if (!is_flag)
      for (const std::string& value : option->results()) text += " " + shell_quoted(value);
  }
  return text;
}

std::string names_of_data_sets() {
  std::string names;
  for (const DataSet& set : data_sets()) names += (names.empty() ? "" : ", ") + set.name;
  return names;
}

bool is_of_key(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// Replaces a key, with the dashes that make it a flag or without, where it stands as a word of its own.
std::string with_flag(const std::string& text, const KeyFlag& named) {
  const std::string key = named.key;
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += key.size()) {
    const std::size_t end = at + key.size();
    const bool goes_on = end < text.size() && is_of_key(text[end]) &&
                         !(text[end] == '.' && (end + 1 == text.size() || !is_of_key(text[end + 1])));
    if (goes_on || (at > 0 && is_of_key(text[at - 1]))) continue;
    const bool is_flag = at >= done + 2 && text.compare(at - 2, 2, "--") == 0;
    result += text.substr(done, at - (is_flag ? 2 : 0) - done) + named.flag;
    done = end;
  }
  return result + text.substr(done);
}

template <class Number>
bool read(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = number_from(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

std::string command_line_of(const CLI::App& app) {
  std::string text = app.get_name() + given_options(app);
  for (const CLI::App* command : app.get_subcommands()) text += " " + command_line_of(*command);
  return text;
}

CLI::Validator seed_number() {
  return {[](std::string& text) {
            std::uint64_t value = 0;
            return read(text, value) ? std::string()
                                     : fmt::format("{:?} is no whole number from 0 to 2^64 - 1", text);
          },
          ""};
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  return {[low, high](std::string& text) {
            const std::optional<std::int64_t> value = count_from(text);
            if (!value || *value < low || *value > high)
              return fmt::format("{:?} is no whole number from {} to {}", text, low, high);
            text = std::to_string(*value);
            return std::string();
          },
          ""};
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

void add_run_argument(CLI::App& command, std::string& path) {
  command.add_option("RUN", path, "Folder of a run, or of one checkpoint")->required()->check(not_empty());
}

void add_sampling_options(CLI::App& command, SampleOptions& sample) {
  add_option(command, "--temperature", sample.temperature,
             "Below 1: more predictable; above 1: more random; 0: always the most probable token",
             number_between(0, 1e9));
  add_option(command, "--top-k", sample.top_k, "Sample from the k most probable tokens; 0: all",
             whole_number(0, 1'000'000'000));
  add_option(command, "--top-p", sample.top_p,
             "Sample from the fewest tokens whose probabilities sum to this", number_between(1e-9, 1));
  add_option(command, "--seed", sample.seed, "Seed of the sampling: the same seed gives the same text",
             seed_number());
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
             "Arithmetic; on the CPU bf16 needs AVX512-BF16, AMX or BFMMLA to be fast",
             CLI::IsMember(value_names<Precision>()));
}

void add_device_option(CLI::App& command, std::string& device) {
  add_option(command, "--device", device, "Where to compute", CLI::IsMember(value_names<DeviceChoice>()));
}

void NewRunOptions::add_to(CLI::App& command) {
  add_option(
      command, "config,--config", config,
      trains ? "Configuration (TOML or JSON); without one what suits the text, its minutes and the model, "
               "or the defaults"
             : "Configuration (TOML or JSON); without one, the defaults",
      not_empty());
  add_option(
      command, "--preset", preset,
      fmt::format("Model or configuration of a paper, by a name that `{} models` lists", program_name())
          .c_str(),
      not_empty());
  command
      .add_option(
          "--data", data,
          "Short for --data.path: text files, folders of texts, - for standard input, or a data set that is "
          "fetched once: " +
              names_of_data_sets())
      ->check(not_empty());
  command.parse_complete_callback([this] { take_config_from_data(); });
  keys.add_to(command, keys_of(defaults));
}

std::vector<KeyFlag> NewRunOptions::given_short() const {
  if (data.empty() || keys.given().contains("data.path")) return {};
  return {{"data.path", "--data"}};
}

void NewRunOptions::take_config_from_data() {
  const auto is_config = [](const std::string& path) {
    return path.ends_with(".toml") || path.ends_with(".json");
  };
  if (!config.empty() || data.size() < 2 || !is_config(data.back())) return;
  config = data.back();
  data.pop_back();
}

std::map<std::string, std::string> NewRunOptions::texts(const char* command) const {
  std::map<std::string, std::string> given = keys.given();
  if (data.empty()) return given;
  if (const auto [path, is_new] = given.emplace("data.path", text_of_list(data)); !is_new)
    fail<ValueError>("{}: --data {} and --data.path {} are one key (leave one out)", command,
                     DataPaths(data).text(), path->second);
  return given;
}

void NewRunOptions::check_place_of_data(const RunConfig& gathered) const {
  namespace fs = std::filesystem;
  if (config.empty()) return;
  const auto check = [&](const char* key, const char* flag, const std::string& path) {
    std::error_code error;
    const fs::path folder = fs::path(config).parent_path();
    // Of a pattern the folder in which it is looked for.
    const std::size_t pattern = path.find_first_of("*?[");
    const fs::path asked =
        pattern == std::string::npos ? fs::path(path) : fs::path(path.substr(0, pattern)).parent_path();
    if (!asked.empty() && asked.is_relative() && !fs::exists(asked, error) &&
        fs::exists(folder / asked, error))
      fail<IoError>(
          "config: {} is {}, which is taken from the working directory, {}, and is not there; it is beside {} ({} {})",
          key, path, fs::current_path(error).string(), config, flag,
          shell_quoted((folder / path).lexically_normal().string()));
  };
  if (data.empty() && !keys.given().contains("data.path"))
    for (const std::string& path : gathered.data.path) check("data.path", "--data", path);
  if (is_sentencepiece_path(gathered.data.tokenizer) && !keys.given().contains("data.tokenizer"))
    check("data.tokenizer", "--data.tokenizer", gathered.data.tokenizer);
}

bool NewRunOptions::gives(const std::string& section, const std::string& key) const {
  if (keys.given().contains(section + "." + key)) return true;
  if (config.empty()) return false;
  const nlohmann::json file = read_run_config(config).value;
  return file.contains(section) && file.at(section).contains(key);
}

RunConfig NewRunOptions::gathered(const char* command, std::vector<std::string>& notes,
                                  const RunConfig* start, const ModelConfig* model) const {
  NewConfig gathered;
  if (start != nullptr) gathered.merge_run(*start);
  if (model != nullptr) gathered.merge_model(*model);
  if (!config.empty()) {
    std::error_code error;
    if (std::filesystem::is_directory(config, error))
      fail<ValueError>(
          "{}: {} is a folder, and a configuration is a file ({}texts are given by --data)", command, config,
          checkpoints_of_run(config).empty()
              ? ""
              : fmt::format("that of this run is {0}/config.json; {1} train --resume goes on with it; ",
                            std::filesystem::path(config).lexically_normal().string(), program_name()));
    gathered.merge_file(config);
  }
  if (!preset.empty()) gathered.merge_preset(preset, command);
  gathered.merge_flags(texts(command));
  const std::string chosen = trains ? gathered.choose_recipe(text_bytes) : "";
  RunConfig completed;
  try {
    completed = gathered.completed();
  } catch (const ConfigError& refused) {  // it may be about values that nobody gave
    if (chosen.empty()) throw;
    fail<ConfigError>("{}; {}", refused.what(), chosen);
  }
  if (!chosen.empty()) notes.push_back(chosen);
  if (start == nullptr || start->data.path != completed.data.path) check_place_of_data(completed);
  for (const std::string& line : gathered.unread()) notes.push_back("warning: " + line);
  return completed;
}

void take_threads(RunConfig& config, const CLI::App& app) {
  const CLI::Option& threads = *app.get_option("--threads");
  if (threads.count() > 0 && config.train.threads > 0) config.train.threads = threads.as<std::int64_t>();
}

int run_on_ranks(const CLI::App& app, const std::function<int(Ranks*)>& command) {
  const bool chosen = app.get_option("--threads")->count() > 0 || std::getenv("EDDY_NUM_THREADS") != nullptr;
  return run_on_ranks(!chosen, command, say);
}

LoadedRun load_run(const char* command, const RunOptions& options) {
  const auto [device, dtype, precision] =
      choose_device_precision({command, "--device", "--precision"}, options.device, options.precision);
  return training::load_run(options.path, dtype, options.checkpoint, device, precision);
}

LoadedRun load_text_run(const char* command, const RunOptions& options, const char* end) {
  LoadedRun run = load_run(command, options);
  if (!run.tokenizer)
    fail<ValueError>("{}: {} was trained on the task {}, which has no text{}", command, options.path,
                     run.config.data.name, end);
  return run;
}

int naming_flags(const std::vector<KeyFlag>& flags, const std::function<int()>& work) {
  const auto named = [&](std::string text) {
    for (const KeyFlag& flag : flags) text = with_flag(text, flag);
    return Error(text);
  };
  try {
    return work();
  } catch (const Error& error) {
    throw named(error.what());
  } catch (const std::bad_alloc&) {
    throw named(kOutOfMemory);
  } catch (const std::length_error&) {
    throw named(kOutOfMemory);
  }
}

void require_memory_of_rows(const std::string& where, const char* rows_flag, std::int64_t rows,
                            const char* length_flag, std::int64_t length) {
  constexpr std::int64_t kTokenBytes = 16;  // as input, as target, and its loss
  const std::int64_t room = free_memory();
  if (length < 1 || rows <= room / length / kTokenBytes) return;
  fail<OutOfMemoryError>(
      "{}: {} rows of {} tokens do not fit in the memory there is, {} (a smaller {} or {}; "
      "--memory-check warn overrules this)",
      where, rows, length, human_bytes(room), rows_flag, length_flag);
}

std::string diverged_text(const RunOptions& options) {
  return fmt::format(
      "warning: the loss is not finite, since weights of {} are not, as after a training that diverged (--checkpoint takes "
      "an earlier checkpoint: best, or step-N)",
      options.path);
}

void check_output(const std::string& where, const std::string& file, const OutputKind& kind) {
  namespace fs = std::filesystem;
  const fs::path parent = fs::path(file).parent_path(), folder = parent.empty() ? fs::path(".") : parent;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail<IoError>("{}: cannot write {}: {} is not a folder (make it first)", where, file, folder.string());
  refuse_foreign_file(where, file, kind);
  if (::access(folder.c_str(), W_OK) != 0)
    fail<IoError>("{}: cannot write {}: {} is not writable (choose another folder)", where, file,
                  folder.string());
  if (::access(file.c_str(), F_OK) == 0 && ::access(file.c_str(), W_OK) != 0)
    fail<IoError>("{}: cannot write {}: it is protected against writing (name another file)", where, file);
  remove_left_overs_of(file);
  keep_on_without_output();
}

void check_two_files(const std::string& where, const char* flag, const std::string& file,
                     const char* other_flag, const std::string& other) {
  const auto whole = [](const std::string& name) {
    std::error_code error;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name), error);
  };
  if (!file.empty() && !other.empty() && whole(file) == whole(other))
    fail<ValueError>("{}: {} and {} name the same file {} (name two)", where, flag, other_flag, file);
}

}  // namespace eddy::app
