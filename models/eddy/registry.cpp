// The registry: the models of this build, each by family and name, and those that a program adds.
#include "models/eddy/registry.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "models/block_recurrent/block_recurrent.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "models/recurrent_transformer/block_recurrence.h"
#include "models/staircase/feedback.h"
#include "models/staircase/lstm.h"
#include "models/staircase/staircase.h"
#include "models/staircase/xl.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr const char *kRecurrent = "recurrent_transformer", *kBlock = "block_recurrent",
                     *kBlockwise = "blockwise_recurrent", *kStaircase = "staircase";

class Registry {
 public:
  Registry() {
    add<UnitForget>(kRecurrent, "unit_forget", "unit recurrence with forget: state of one position",
                    ExampleOf::recurrence);
    add<BlockForget>(kRecurrent, "block_forget", "block recurrence with forget: state of one block",
                     ExampleOf::recurrence);
    add<BlockAccumulate>(kRecurrent, "block_accumulate",
                         "block recurrence with accumulate: outputs are spread forward");
    add<RegularTransformer>(kRecurrent, "regular", "the regular causal transformer",
                            ExampleOf::plain_attention);
    add<BlockRecurrent>(kBlock, "slide",
                        "sliding-window transformer: gradients between the blocks of a segment");
    add<BlockRecurrent>(kBlock, "xl", "one window per segment, keys of the last one cached");
    add<BlockRecurrent>(kBlock, "vanilla", "one window per segment, no cache");
    add<BlockRecurrent>(kBlock, "block_recurrent",
                        "recurrent cells over blocks of tokens, optionally with feedback",
                        ExampleOf::recurrence);
    add<BlockRecurrent>(kBlock, "memorizing", "external memory of past keys and values");
    add<MemoryLlama>(kBlockwise, "memory_llama", "Llama whose layers attend over a chunk and a memory of it",
                     ExampleOf::recurrence);
    add<CausalLlama>(kBlockwise, "llama", "Llama: rotary positions, RMS norms, gated MLP");
    add<CausalLlama>(kBlockwise, "llama_window", "the same weights, each token seeing a window of keys");
    add<Staircase>(kStaircase, "staircase", "a window of chunks, each advanced by one pass per step",
                   ExampleOf::recurrence);
    add<Staircase>(kStaircase, "cached_staircase", "the same with chunks frozen after some passes");
    add<StaircaseXl>(kStaircase, "ladder", "the stack applied several times to a whole segment");
    add<StaircaseXl>(kStaircase, "transformer_xl",
                     "a segment at a time, with the inputs of each layer remembered");
    add<StaircaseFeedback>(kStaircase, "feedback",
                           "token by token, all layers attending to one mixed memory");
    add<StaircaseXl>(kStaircase, "universal", "one layer applied several times");
    add<StaircaseLstm>(kStaircase, "lstm", "a stack of LSTM layers");
  }

  void add(const FamilyEntry& family, const ModelEntry& model) {
    const auto known = std::find_if(families.begin(), families.end(), [&](const FamilyEntry& other) {
      return std::string_view(other.name) == family.name;
    });
    if (known != families.end() && known->keys != family.keys)
      fail<ConfigError>("register_model: the family {} of {} has other keys (name another family)",
                        family.name, model.model);
    if (known == families.end()) families.push_back(family);
    models.push_back(model);
  }

  std::vector<FamilyEntry> families;
  std::vector<ModelEntry> models;

 private:
  template <class M>
  void add(const char* family, const char* model, const char* summary,
           ExampleOf example = ExampleOf::nothing) {
    add(detail::family_entry<typename M::FamilyKeys>(family),
        detail::model_entry<M>({family, model}, summary, {.example = example}));
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void check_new_name(const char* what, std::string_view name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!plain) fail<ConfigError>("{}: \"{}\" is no name (letters a-z, digits and _)", what, name);
}

namespace detail {

void add_model(const FamilyEntry& family, const ModelEntry& model) {
  Registry& all = registry();
  for (const char* name : {family.name, model.model}) check_new_name("register_model", name);
  for (const ModelEntry& other : all.models)
    if (std::string_view(other.model) == model.model)
      fail<ConfigError>("register_model: {} is the name of a model of the family {} (name it otherwise)",
                        model.model, other.family);
  // Descriptions of keys name either a family or a model.
  for (const ModelEntry& other : all.models) {
    if (std::string_view(other.family) == family.name) continue;
    for (const auto& [name, taken] : {std::pair{family.name, other.model}, {model.model, other.family}})
      if (std::string_view(name) == taken)
        fail<ConfigError>(
            "register_model: {} names a family and a model of another family (name it otherwise)", name);
  }
  const Registry before = all;
  all.add(family, model);
  try {
    ModelConfig config;
    KeyList keys;
    describe(keys, config);
  } catch (const ConfigError& error) {
    all = before;
    fail<ConfigError>("register_model: {}: {}", model.model, error.what());
  }
}

}  // namespace detail

std::span<const FamilyEntry> family_registry() {
  return registry().families;
}

std::span<const ModelEntry> model_registry() {
  return registry().models;
}

}  // namespace eddy
