// The parity door: one case through a model, everything that another implementation can compare, in one file.
#pragma once

#include <string>

namespace eddy {

// Paths of the parts; one file may serve for several. `case_dir` stands for config.json and case.safetensors
// in it.
struct DumpOptions {
  std::string case_dir;
  std::string config;   // a golden config.json or a run's config (TOML or JSON)
  std::string weights;  // param.<name> or <name>
  std::string tokens;   // tokens [batch, time], optionally targets [batch, rows], start [batch, segments] and
                        // state.<name>
  std::string state;    // state.<name>, or next_state.<name> of an earlier dump or case; optional
  std::string out;
  std::string device = "cpu";     // cpu | cuda
  std::string precision = "f64";  // f64 | f32
  bool grads = false;             // also grad.<name> of every parameter; needs targets
};

// Runs the case in evaluation mode and writes logits, with targets loss [1], with grads grad.<name> (zeros
// where a parameter has no influence) and next_state.<name> to `out`. Returns what is worth a line to the
// user, mostly "".
// errors: IoError, FormatError, ConfigError, DeviceError; ValueError for an `out` that is one of the inputs;
// ValueError and ShapeError naming every missing, unexpected or mis-shaped parameter at once.
std::string dump(const DumpOptions& options);

}  // namespace eddy
