// One CLI11 option per described key.
#include "train/config/config_flags.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <variant>

#include "tensor/base/format.h"

namespace eddy::training {
namespace {

struct TypeName {
  std::string operator()(const bool*) const { return "true|false"; }
  std::string operator()(const std::int64_t*) const { return "INT"; }
  std::string operator()(const double*) const { return "REAL"; }
  std::string operator()(const std::string*) const { return "TEXT"; }
  std::string operator()(const std::vector<std::int64_t>*) const { return "INT,INT,..."; }
  std::string operator()(const ConfigField::Texts*) const { return "TEXT"; }
  std::string operator()(const void*) const { return ""; }  // of files alone
};

constexpr const char* kHidden = "";  // the group of options that CLI11 leaves out of the help

std::string group_of(const ConfigField& field) {
  return "[" + field.section + "]";
}

}  // namespace

std::string text_of_list(const ConfigField::Texts& texts) {
  if (texts.size() == 1) return texts.front();
  return nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void ConfigFlags::add_to(CLI::App& app, const ConfigKeys& keys) {
  for (const ConfigField& field : keys.fields()) {
    const std::string name = field.full_key();
    const std::string names = (field.key == field.section ? "--" + field.key + "," : "") + "--" + name;
    const std::string help = fmt::format("{} ({})", field.help, field.rule());
    // A list is given by one flag for each.
    CLI::Option* const option =
        std::holds_alternative<ConfigField::Texts*>(field.target)
            ? app.add_option_function<ConfigField::Texts>(
                     names,
                     [this, name](const ConfigField::Texts& texts) { given_[name] = text_of_list(texts); },
                     help)
                  ->allow_extra_args(false)
            : app.add_option_function<std::string>(
                  names, [this, name](const std::string& text) { given_[name] = text; }, help);
    option->type_name(std::visit(TypeName{}, field.target))->default_str(text_of(field));
    option->group(field.use == KeyUse::common ? group_of(field) : kHidden);
  }
  std::vector<std::pair<CLI::Option*, std::string>> hidden;
  for (const ConfigField& field : keys.fields())
    if (field.use != KeyUse::common)
      hidden.emplace_back(app.get_option("--" + field.full_key()), group_of(field));
  const auto show_all = [hidden] {
    for (const auto& [option, group] : hidden) option->group(group);
    throw CLI::CallForHelp();
  };
  app.add_flag_callback("--help-all", show_all, "Print this help with every key, and exit")
      ->trigger_on_parse()
      ->configurable(false);
}

void ConfigFlags::apply(ConfigKeys& keys) const {
  keys.read_texts(given_);
}

}  // namespace eddy::training
