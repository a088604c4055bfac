// Command line flags for described keys: `--model.layers 6`, `--model.positions true`, `--section.list
// 1,2,3`. CLI11 only splits the command line; texts become values by the same checks as a file's values.
// Precedence is the order of the calls: defaults, then a file, then apply().
#pragma once

#include <map>
#include <string>

#include "train/config/config.h"

namespace CLI {
class App;
}

namespace eddy {

class ConfigFlags {
 public:
  // Gives the program (or subcommand) one option per key, with help, rule and default. The app and this
  // object must outlive each other's use: options write into this object.
  void add_to(CLI::App& app, const ConfigKeys& keys);
  // Puts what the command line gave into the structs.
  // errors: ConfigError for a bad value, and for an argument that no option takes, with the nearest flag.
  void apply(ConfigKeys& keys) const;
  // "section.key" to text, of the flags given.
  const std::map<std::string, std::string>& given() const { return given_; }

  ConfigFlags() = default;
  ConfigFlags(const ConfigFlags&) = delete;
  ConfigFlags& operator=(const ConfigFlags&) = delete;

 private:
  const CLI::App* app_ = nullptr;
  std::map<std::string, std::string> given_;
};

}  // namespace eddy
