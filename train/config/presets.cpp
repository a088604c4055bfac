// Reads the presets of the families, with the descriptions of the model's keys.
#include "train/config/run_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tensor/base/format.h"
#include "train/config/config_file.h"
#include "train/words/likely_name.h"

namespace eddy::training {
namespace {

using nlohmann::json;

constexpr std::string_view kFamilies[] = {
#include "embedded/models/recurrent_transformer/presets.toml"
    ,
#include "embedded/models/block_recurrent/presets.toml"
    ,
#include "embedded/models/blockwise_recurrent/presets.toml"
    ,
#include "embedded/models/staircase/presets.toml"
};

// Sets the keys of a preset, after those of its base.
void set_keys(ModelConfig& config, const json& presets, const json& preset) {
  if (const auto base = preset.find("base"); base != preset.end())
    set_keys(config, presets, *std::find_if(presets.begin(), presets.end(), [&](const json& other) {
               return other["name"] == *base;
             }));
  ConfigKeys keys = keys_of(config);
  keys.ignore({"name", "base", "parameters"});
  keys.read({"presets.toml", {{"model", preset}}, {}});
}

}  // namespace

const std::vector<NamedConfig>& paper_configs() {
  static const std::vector<NamedConfig> configs = [] {
    std::vector<NamedConfig> all;
    for (const std::string_view family : kFamilies) {
      const json presets = config_from_toml(family, "presets.toml").value.at("preset");
      for (const json& preset : presets) {
        all.push_back({preset.at("name"), {}, preset.at("parameters")});
        set_keys(all.back().config, presets, preset);
      }
    }
    return all;
  }();
  return configs;
}

const ModelConfig& paper_config(const std::string& name, const char* program, const char* kind,
                                std::vector<std::string> others) {
  for (const NamedConfig& named : paper_configs()) {
    if (named.name == name) return named.config;
    others.push_back(named.name);
  }
  fail<ConfigError>("{}: there is no {} '{}' ({}one of {})", program, kind, name, nearest_text(name, others),
                    fmt::join(others, ", "));
}

}  // namespace eddy::training
