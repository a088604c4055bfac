// Reads and writes the file of a verdict, and decides by its trials which kernels are taken.
#include "train/app/measure/kernels/kernel_verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ops/core/kernel_choices.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/files/digest.h"
#include "train/files/text_file.h"

namespace eddy::app {
using namespace training;
using namespace detail;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_choice(const KernelTrial& trial) {
  return trial.name.find('=') != std::string::npos;
}

// The largest part of the plain kernel's time that a trial's kernel takes: at calls of this choice, or, where none has
// its name, at all.
double part_of_plain(const KernelTrial& trial, std::string_view choice) {
  const auto is_of_choice = [&](const TrialTime& time) { return time.what == choice; };
  const bool all = std::none_of(trial.times.begin(), trial.times.end(), is_of_choice);
  double part = 0;
  for (const TrialTime& time : trial.times)
    if ((all || is_of_choice(time)) && time.plain_ms > 0) part = std::max(part, time.ms / time.plain_ms);
  return part;
}

// "attention=wgmma": the fastest that passed of the trials of a choice.
std::string fastest(const std::vector<KernelTrial>& trials, const KernelRecord& choice) {
  std::string best = "plain";
  double least = kWorthIt;
  for (const KernelTrial& trial : trials) {
    const std::size_t equals = trial.name.find('=');
    if (trial.name.substr(0, equals) != choice.part_of || !trial.passed() || trial.times.empty()) continue;
    if (const double part = part_of_plain(trial, choice.name); part < least) {
      least = part;
      best = trial.name.substr(equals + 1);
    }
  }
  return fmt::format("{}={}", choice.name, best);
}

std::vector<std::string> refusals(const std::vector<KernelTrial>& trials, bool choices) {
  std::vector<std::string> lines;
  for (const KernelTrial& trial : trials)
    if (is_choice(trial) == choices && !trial.problem.empty())
      lines.push_back(fmt::format("{}: {}", trial.name, trial.problem));
  return lines;
}

std::string key_digest(const std::string& gpu, const std::string& build) {
  Digest digest;
  digest.update(gpu + "\n" + build);
  return digest.hex();
}

}  // namespace

std::string KernelVerdict::kernels() const {
  std::string list;
  for (const KernelRecord& choice : kKernelRecords)
    list += (list.empty() ? "" : ",") + fastest(trials, choice);
  return list;
}

std::string KernelVerdict::refused() const {
  std::string list;
  for (const KernelTrial& trial : trials)
    if (is_choice(trial) && !trial.problem.empty()) list += (list.empty() ? "" : ",") + trial.name;
  return list;
}

std::vector<std::string> KernelVerdict::refused_choices() const {
  return refusals(trials, true);
}

std::vector<std::string> KernelVerdict::refused_ops() const {
  return refusals(trials, false);
}

json to_json(const KernelTrial& trial) {
  json times = json::array();
  for (const TrialTime& time : trial.times)
    times.push_back({{"what", time.what}, {"ms", time.ms}, {"plain_ms", time.plain_ms}});
  return {{"name", trial.name}, {"problem", trial.problem}, {"left_out", trial.left_out}, {"times", times}};
}

KernelTrial trial_from_json(const json& from) {
  KernelTrial trial;
  trial.name = from.at("name").get<std::string>();
  trial.problem = from.at("problem").get<std::string>();
  trial.left_out = from.at("left_out").get<std::string>();
  for (const json& time : from.at("times"))
    trial.times.push_back(
        {time.at("what").get<std::string>(), time.at("ms").get<double>(), time.at("plain_ms").get<double>()});
  return trial;
}

fs::path verdict_file(const fs::path& cache, const std::string& gpu, const std::string& build) {
  return cache / "kernels" / (key_digest(gpu, build) + ".json");
}

std::optional<KernelVerdict> read_verdict(const fs::path& cache, const std::string& gpu,
                                          const std::string& build) {
  const fs::path file = verdict_file(cache, gpu, build);
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  try {
    const json from = read_json_file(file);
    KernelVerdict verdict{from.at("gpu").get<std::string>(),
                          from.at("build").get<std::string>(),
                          from.at("day").get<std::string>(),
                          {}};
    if (verdict.gpu != gpu || verdict.build != build) return {};
    for (const json& trial : from.at("trials")) verdict.trials.push_back(trial_from_json(trial));
    return verdict;
  } catch (const json::exception&) {  // not in this form: as if there were none
    return {};
  } catch (const FormatError&) {
    return {};
  }
}

void write_verdict(const fs::path& cache, const KernelVerdict& verdict) {
  json trials = json::array();
  for (const KernelTrial& trial : verdict.trials) trials.push_back(to_json(trial));
  const json all = {{"gpu", verdict.gpu},
                    {"build", verdict.build},
                    {"day", verdict.day},
                    {"kernels", verdict.kernels()},
                    {"trials", trials}};
  replace_text_file(verdict_file(cache, verdict.gpu, verdict.build), all.dump(1) + "\n");
}

}  // namespace eddy::app
