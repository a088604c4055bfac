// Reads the presets of the families, with the descriptions of the model's keys.
#include "train/config/run_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"
#include "train/words/suggest.h"

namespace eddy::training {
namespace {

constexpr std::string_view kFamilies[] = {
#include "embedded/models/presets.toml"
};

struct Preset {
  NamedConfig named;
  std::string base;  // the preset whose keys come first
};

void describe(KeyList& keys, Preset& preset) {
  describe(keys, preset.named.config);
  keys.add("name", preset.named.name, "Name").required();
  keys.add("base", preset.base, "Preset whose keys come first");
  keys.add("parameters", preset.named.parameters, "Number of parameters that the model must have", {1})
      .required();
}

struct PresetFile {
  std::vector<Preset> presets;
};

void describe(KeyList& keys, PresetFile& file) {
  keys.add_list("preset", file.presets, "a list of tables, each with the keys of a model");
}

// Reads a preset, over the keys of its base.
void read_preset(Preset& preset, const ConfigSource& source, const PresetFile& file, std::size_t index) {
  if (const std::string& base = file.presets[index].base; !base.empty()) {
    const auto found = std::find_if(file.presets.begin(), file.presets.end(),
                                    [&](const Preset& other) { return other.named.name == base; });
    if (found == file.presets.end())
      fail<ConfigError>("{}: the base is {}, and there is no such preset in the file",
                        source.place(fmt::format("preset.{}.base", index)), quote_text(base));
    read_preset(preset, source, file, static_cast<std::size_t>(found - file.presets.begin()));
  }
  KeyList keys;
  describe(keys, preset);
  read_table(keys, source.part(fmt::format("preset.{}", index)));
}

}  // namespace

const std::vector<NamedConfig>& paper_configs() {
  static const std::vector<NamedConfig> configs = [] {
    std::vector<NamedConfig> all;
    for (const std::string_view family : kFamilies) {
      const ConfigSource source = config_from_toml(family, "presets.toml");
      const auto file = read_as<PresetFile>(source);
      for (std::size_t i = 0; i < file.presets.size(); ++i) {
        Preset preset;
        read_preset(preset, source, file, i);
        all.push_back(std::move(preset.named));
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
  fail<ConfigError>("{}: there is no {} '{}' ({}one of {})", program, kind, name, suggest_value(name, others),
                    fmt::join(others, ", "));
}

}  // namespace eddy::training
