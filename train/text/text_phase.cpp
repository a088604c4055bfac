// The phases of a run's text as JSON, one list [name, bytes, sha256] for each file.
#include "train/text/text_phase.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/words/human_text.h"

namespace eddy::training {

nlohmann::json to_json(const std::vector<TextPhase>& phases) {
  nlohmann::json list = nlohmann::json::array();
  for (const TextPhase& phase : phases) {
    nlohmann::json files = nlohmann::json::array();
    for (const TextPart& part : phase.parts) files.push_back({part.name, part.bytes, part.sha256});
    list.push_back({{"step", phase.step},
                    {"folder", phase.folder},
                    {"train", phase.train},
                    {"valid", phase.valid},
                    {"files", std::move(files)}});
    if (!phase.cut.separator.empty()) list.back()["separator"] = phase.cut.separator;
    if (!phase.cut.json_field.empty()) list.back()["json_field"] = phase.cut.json_field;
  }
  return list;
}

std::vector<TextPhase> text_phases_from_json(const nlohmann::json& value, const std::string& name) {
  std::vector<TextPhase> phases;
  if (!value.is_array()) fail<FormatError>("data: {} is damaged: its phases are no list", name);
  try {
    for (const nlohmann::json& one : value) {
      TextPhase phase{.step = one.at("step").get<std::int64_t>(),
                      .folder = one.at("folder").get<bool>(),
                      .train = one.at("train").get<std::int64_t>(),
                      .valid = one.at("valid").get<std::int64_t>(),
                      .parts = {},
                      .cut = {one.value("separator", ""), one.value("json_field", "")}};
      for (const nlohmann::json& file : one.at("files"))
        phase.parts.push_back(
            {file.at(0).get<std::string>(), file.at(1).get<std::int64_t>(), file.at(2).get<std::string>()});
      const bool fits = !phase.has_splits() || (phase.train >= 0 && phase.valid >= 0 &&
                                                phase.train + phase.valid == std::ssize(phase.parts));
      if (phase.parts.empty() || !fits)
        fail<FormatError>("data: {} is damaged: a phase of {} texts, {} to train and {} to validate", name,
                          phase.parts.size(), phase.train, phase.valid);
      phases.push_back(std::move(phase));
    }
  } catch (const nlohmann::json::exception& error) {
    fail<FormatError>("data: {} is damaged: its phases: {}", name, plain_message(error.what()));
  }
  return phases;
}

std::string describe(const TextPhase& phase) {
  constexpr std::size_t kShown = 8;
  std::int64_t bytes = 0;
  for (const TextPart& part : phase.parts) bytes += part.bytes;
  std::string text =
      fmt::format("{} {} ({})", phase.parts.size(), plural(phase.parts.size(), "text"), decimal_bytes(bytes));
  for (std::size_t i = 0; i < std::min(kShown, phase.parts.size()); ++i)
    text += (i == 0 ? ": " : ", ") + phase.parts[i].name;
  if (phase.parts.size() > kShown) text += fmt::format(" and {} more", phase.parts.size() - kShown);
  return text;
}

}  // namespace eddy::training
