// Sessions to and from safetensors, and the digests that identify their model.
#include "train/generate/session.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/safetensors.h"
#include "train/config/run_config.h"
#include "train/files/digest.h"
#include "train/files/sha256.h"

namespace eddy::training {
namespace {

constexpr const char* kSessionFormat = "eddy session 1";
constexpr const char* kDigestKey = "digest";
// The largest position accepted from a file, far from where counting on would overflow.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 62;

// A digest of the keys that are not at their defaults,
// so that a key which models get later leaves all sessions readable.
std::string config_digest(const ModelConfig& config) {
  nlohmann::json keys = to_json(config);
  const nlohmann::json defaults = to_json(ModelConfig());
  for (const auto& [key, value] : defaults.items())
    if (keys.at(key) == value) keys.erase(key);
  return sha256_hex(keys.dump());
}

// A digest of the parameters in order of declaration: equal for equal weights of one precision.
std::string weights_digest(const Model& model) {
  Sha256 digest;
  for (const Parameter& parameter : model.params().parameters()) {
    const Tensor values = raw::contiguous(raw::to_device(parameter.value, kCpu));
    digest.update({static_cast<const char*>(values.raw_data()), static_cast<std::size_t>(values.bytes())});
  }
  return digest.hex_digest();
}

std::string precision_of(const Model& model) {
  return dtype_name(model.params().activations());
}

// The metadata of a session's file.
class Notes {
 public:
  Notes(const SafetensorsMetadata& notes, const std::string& file) : notes_(notes), file_(file) {}

  const std::string& text(const char* key) const {
    const auto found = notes_.find(key);
    if (found == notes_.end())
      fail<FormatError>("session: {} has no {} (expected: a file that --save-session wrote)", file_, key);
    return found->second;
  }
  template <class Number>
  Number number(const char* key) const {
    const std::string& word = text(key);
    Number value{};
    const auto [end, error] = number_from(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
      fail<FormatError>("session: {} is damaged: its {} is {:?}, no number", file_, key, word);
    return value;
  }

 private:
  const SafetensorsMetadata& notes_;
  const std::string& file_;
};

// errors: FormatError for a file that is no session, or one of another format.
void check_session_format(const Notes& notes, const std::string& file) {
  if (const std::string& format = notes.text("format"); format != kSessionFormat)
    fail<FormatError>("session: {} has format {:?}, and this program reads {:?}", file, format,
                      kSessionFormat);
}

void check_model(const Notes& notes, const Model& model, const std::string& file) {
  if (const std::string& theirs = notes.text("model"); theirs != model.config().model)
    fail<ConfigError>("session: {} was written by a {}, and this model is a {} (use the run that wrote it)",
                      file, theirs, model.config().model);
  if (notes.text("config_sha256") != config_digest(model.full_config()))
    fail<ConfigError>(
        "session: {} was written by a {} with other sizes or switches (use the run that wrote it)", file,
        model.config().model);
  if (const std::string& theirs = notes.text("precision"); theirs != precision_of(model))
    fail<ConfigError>("session: {} was computed in {}, and this is {} (choose the same --precision)", file,
                      theirs, precision_of(model));
  if (notes.text("weights_sha256") != weights_digest(model))
    fail<ConfigError>(
        "session: {} was written with other weights of the same model (use the run and the checkpoint that wrote it)",
        file);
}

GenerateState text_of(const std::map<std::string, Tensor>& tensors, std::int64_t position, const Model& model,
                      const std::string& file) {
  constexpr std::string_view kState = "state.";
  const Device device = model.params().values().device();
  GenerateState text;
  text.position = position;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(kState)) text.model.set(name.substr(kState.size()), raw::to_device(tensor, device));
  const auto logits = tensors.find("logits"), unread = tensors.find("unread");
  if (position < 1 || position > kMostTokens || text.model.empty() ||
      (logits == tensors.end()) == (unread == tensors.end()))
    fail<FormatError>(
        "session: {} is damaged: {} tokens, {} state tensors, and {} (a text that was begun, "
        "its state, and either logits or an unread token)",
        file, position, text.model.size(),
        logits == tensors.end() ? "no logits" : "both logits and an unread token");
  if (logits != tensors.end()) {
    if (logits->second.dtype() != Dtype::f32 || logits->second.shape() != Shape{model.config().n_out})
      fail<FormatError>("session: {} is damaged: its logits are {} of {} (here [{}] of f32)", file,
                        to_string(logits->second.shape()), dtype_name(logits->second.dtype()),
                        model.config().n_out);
    text.logits = logits->second;
    return text;
  }
  if (unread->second.dtype() != Dtype::i32 || unread->second.shape() != Shape{1})
    fail<FormatError>("session: {} is damaged: its unread token is {} of {} (here [1] of i32)", file,
                      to_string(unread->second.shape()), dtype_name(unread->second.dtype()));
  text.unread = unread->second.to_vector<std::int32_t>();
  if (text.unread[0] < 0 || text.unread[0] >= model.config().vocab)
    fail<FormatError>("session: {} is damaged: its unread token is {} (0 to {})", file, text.unread[0],
                      model.config().vocab - 1);
  return text;
}

SafetensorsFile open_session(const std::string& path) {
  try {
    return SafetensorsFile::open(path);
  } catch (const FormatError& error) {
    fail<FormatError>("session: {} is not a session (expected: a file that --save-session wrote): {}", path,
                      error.what());
  }
}

// The digest of a session: of its metadata but the digest itself, and of its tensors, both by name, each text
// with its length before it, so that no two sessions are the same bytes.
class SessionDigest {
 public:
  explicit SessionDigest(const SafetensorsMetadata& notes) {
    for (const auto& [key, value] : notes) {
      if (key == kDigestKey) continue;
      add_text(key);
      add_text(value);
    }
  }
  void add_tensor(const std::string& name, Dtype dtype, const std::vector<std::int64_t>& shape,
                  const void* data, std::int64_t bytes) {
    add_text(name);
    add_text(dtype_name(dtype));
    add_text(fmt::format("{}", fmt::join(shape, ",")));
    digest_.update({static_cast<const char*>(data), static_cast<std::size_t>(bytes)});
  }
  std::string hex() const { return digest_.hex(); }

 private:
  void add_text(const std::string& text) { digest_.update(fmt::format("{}:{}", text.size(), text)); }

  Digest digest_;
};

std::string problem_of(const SafetensorsFile& file) {
  const SafetensorsMetadata& notes = file.metadata();
  const auto saved = notes.find(kDigestKey);
  if (saved == notes.end()) return "it has no digest";
  SessionDigest digest(notes);
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.dtype) return fmt::format("it holds {:?} of type {}", entry.name, entry.type);
    std::vector<char> data(static_cast<std::size_t>(entry.bytes));
    file.read(entry, data.data());
    digest.add_tensor(entry.name, *entry.dtype, entry.shape, data.data(), entry.bytes);
  }
  if (digest.hex() == saved->second) return "";
  return fmt::format("its digest is {}, and {:?} when it was saved", digest.hex(), saved->second);
}

}  // namespace

void save_session(const std::string& path, const Model& model, const Session& session) {
  const GenerateState& text = session.text;
  if (text.position == 0) fail<ValueError>("session: nothing was read or written yet (there is no state)");
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : text.model) tensors.emplace("state." + name, tensor);
  if (text.unread.empty())
    tensors.emplace("logits", text.logits);
  else
    tensors.emplace("unread", Tensor::from(text.unread, {std::ssize(text.unread)}));
  SafetensorsMetadata notes{{"format", kSessionFormat},
                            {"model", model.config().model},
                            {"config_sha256", config_digest(model.full_config())},
                            {"weights_sha256", weights_digest(model)},
                            {"precision", precision_of(model)},
                            {"position", fmt::format("{}", text.position)},
                            {"seed", fmt::format("{}", session.sample.seed)},
                            {"temperature", fmt::format("{}", session.sample.temperature)},
                            {"top_k", fmt::format("{}", session.sample.top_k)},
                            {"top_p", fmt::format("{}", session.sample.top_p)}};
  SessionDigest digest(notes);
  for (auto& [name, tensor] : tensors) {
    tensor = raw::contiguous(raw::to_device(tensor, kCpu));
    digest.add_tensor(name, tensor.dtype(), tensor.shape().to_vector(),
                      tensor.elements() == 0 ? nullptr : tensor.raw_data(), tensor.bytes());
  }
  notes.emplace(kDigestKey, digest.hex());
  refuse_foreign_file("session", path, kSessionFile);
  remove_left_overs_of(path);
  save_safetensors(path, tensors, notes);
}

std::string session_problem(const std::string& path) {
  const SafetensorsFile file = open_session(path);
  check_session_format(Notes(file.metadata(), path), path);
  return problem_of(file);
}

const OutputKind kSessionFile{"a session", [](const std::string& path) {
                                const SafetensorsMetadata notes = SafetensorsFile::open(path).metadata();
                                const auto format = notes.find("format");
                                return format != notes.end() && format->second == kSessionFormat;
                              }};

Session load_session(const std::string& path, const Model& model) {
  const SafetensorsFile file = open_session(path);
  const Notes notes(file.metadata(), path);
  check_session_format(notes, path);
  // First of all: what was damaged must not be taken for another model's.
  if (const std::string problem = problem_of(file); !problem.empty())
    fail<FormatError>("session: {} is damaged: {} (begin the text again, or take a copy)", path, problem);
  check_model(notes, model, path);
  Session session;
  session.sample.seed = notes.number<std::uint64_t>("seed");
  session.sample.temperature = notes.number<double>("temperature");
  session.sample.top_k = notes.number<std::int64_t>("top_k");
  session.sample.top_p = notes.number<double>("top_p");
  try {
    validate(session.sample);
  } catch (const ValueError& error) {
    fail<FormatError>("session: {} is damaged: {} (begin the text again, or take a copy)", path,
                      error.what());
  }
  session.text = text_of(load_safetensors(file), notes.number<std::int64_t>("position"), model, path);
  return session;
}

}  // namespace eddy::training
