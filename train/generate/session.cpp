// Sessions to and from safetensors, and the digests that identify their model.
#include "train/generate/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "train/config/run_config.h"
#include "train/files/digest.h"
#include "train/files/sha256.h"

namespace eddy::training {
namespace {

constexpr const char* kFormat = "eddy session 1";
constexpr const char* kDigestKey = "digest";
// The other texts of a session.
constexpr const char* kKeys[] = {"format",   "model", "config_sha256", "weights_sha256", "precision",
                                 "position", "seed",  "temperature",   "top_k",          "top_p"};
// The largest position accepted from a file, far from where counting on would overflow.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 62;

// The keys of models that the first sessions knew, in order. Later ones are in a digest where they are not at their
// defaults, so that a new key leaves all sessions readable.
constexpr std::string_view kFirstKeys =
    "accumulate activation attn_dropout bias block cache cache_after carry cell chunk clear_state "
    "cold_start context detach dim dropout emb_dropout embed_dim family feedback feedback_carry "
    "feedback_memory feedback_self gate head_dim heads init_std kv_heads layers logit_divisor "
    "mask_token_zero memory_bias memory_ffn memory_ffn_prenorm memory_init memory_layers memory_norm "
    "memory_proj memory_qkv memory_query memory_search memory_size memory_topk mlp_dim model n_out "
    "norm_eps out_dropout positions prenorm qk_eps qk_norm readout recurrent_layers rel_buckets "
    "rel_max_distance repeats rope_theta scale_abs segment shared_kv span states steps tanh_rule tied "
    "vocab window z_bias";

std::string config_digest(const ModelConfig& config) {
  nlohmann::json all = to_json(config);
  const nlohmann::json defaults = to_json(ModelConfig());
  const std::string known = fmt::format(" {} ", kFirstKeys);
  for (const auto& [key, value] : defaults.items())
    if (known.find(fmt::format(" {} ", key)) == std::string::npos && all.at(key) == value) all.erase(key);
  return sha256_hex(all.dump());
}

// The digest in sessions that were saved before all keys that a model does not read were reset: of these alone.
std::string earlier_digest(const ModelConfig& given) {
  ModelConfig config = given, reset = given;
  reset_unread(reset);
  config.block = reset.block;
  config.readout = reset.readout;
  config.recurrent_layers = reset.recurrent_layers;
  config.feedback = reset.feedback;
  config.memory_layers = reset.memory_layers;
  config.repeats = reset.repeats;
  config.n_out = reset.n_out;
  if (!reads_key(given, "n_out")) config.tied = reset.tied;
  fill(config);
  return config_digest(config);
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
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
      fail<FormatError>("session: {} is damaged: its {} is {:?}, no number", file_, key, word);
    return value;
  }

 private:
  const SafetensorsMetadata& notes_;
  const std::string& file_;
};

void check_model(const Notes& notes, const Model& model, const ModelConfig* given, const std::string& file) {
  if (const std::string& theirs = notes.text("model"); theirs != model.config().model)
    fail<ConfigError>("session: {} was written by a {}, and this model is a {} (use the run that wrote it)",
                      file, theirs, model.config().model);
  if (const std::string& theirs = notes.text("config_sha256");
      theirs != config_digest(model.full_config()) && (given == nullptr || theirs != earlier_digest(*given)))
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
  if (saved == notes.end()) {
    // Its name may be what was damaged.
    for (const auto& [key, value] : notes)
      if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
        return fmt::format("it holds the unknown text {:?}", key);
    return "";
  }
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
  SafetensorsMetadata notes{{"format", kFormat},
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
  refuse_foreign_file("session", path, kOwnSession);
  save_safetensors(path, tensors, notes);
}

std::string session_problem(const std::string& path) {
  const SafetensorsFile file = open_session(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kFormat)
    fail<FormatError>("session: {} is not a session (expected: a file that --save-session wrote)", path);
  return problem_of(file);
}

std::string not_finite_in_session(const std::string& path) {
  if (open_session(path).metadata().contains(kDigestKey)) return "";
  for (const auto& [name, tensor] : load_safetensors(path)) {
    if (!is_floating(tensor.dtype())) continue;
    for (const double value : raw::cast(tensor, Dtype::f64).to_vector<double>())
      if (!std::isfinite(value)) return name;
  }
  return "";
}

const OwnKind kOwnSession{"a session", [](const std::string& path) {
                            const SafetensorsMetadata notes = SafetensorsFile::open(path).metadata();
                            const auto format = notes.find("format");
                            return format != notes.end() && format->second == kFormat;
                          }};

Session load_session(const std::string& path, const Model& model, const ModelConfig* given) {
  const SafetensorsFile file = open_session(path);
  const Notes notes(file.metadata(), path);
  if (notes.text("format") != kFormat)
    fail<FormatError>("session: {} is in format {:?} (here {:?})", path, notes.text("format"), kFormat);
  // First of all: what was damaged must not be taken for another model's.
  if (const std::string problem = problem_of(file); !problem.empty())
    fail<FormatError>("session: {} is damaged: {} (begin the text again, or take a copy)", path, problem);
  if (!file.metadata().contains(kDigestKey))
    add_warning(fmt::format(
        "warning: {} has no digest, so it is not checked (sessions saved by this version have one)", path));
  check_model(notes, model, given, path);
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
