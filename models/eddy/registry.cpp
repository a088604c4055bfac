// The registry: every family, and every model by family and name.
#include "models/eddy/registry.h"

#include "models/block_recurrent/block_recurrent.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "models/recurrent_transformer/block_variant.h"
#include "models/staircase/feedback.h"
#include "models/staircase/lstm.h"
#include "models/staircase/staircase.h"
#include "models/staircase/xl.h"

namespace eddy {
namespace {

// Lets `change` change the part of a config that a family's models see.
template <class Keys, class Change>
void change_part(ModelConfig& config, Change change) {
  auto part = part_of<FamilyConfig<Keys>>(config);
  change(part);
  static_cast<CommonKeys&>(config) = part;
  static_cast<Keys&>(config) = part;
}

template <class Keys, auto kDescribe, auto kCheck, auto kChoose, auto kFill = [](FamilyConfig<Keys>&) {}>
constexpr FamilyEntry family(const char* name) {
  return {name, [](KeyList& keys, ModelConfig& config) { kDescribe(keys, config); },
          [](const ModelConfig& config) { kCheck(part_of<FamilyConfig<Keys>>(config)); },
          [](ModelConfig& config, const GivenKeys& given) {
            change_part<Keys>(config, [&](FamilyConfig<Keys>& part) { kChoose(part, given); });
          },
          [](ModelConfig& config) { change_part<Keys>(config, kFill); }};
}

template <class M>
constexpr ModelEntry entry(const char* family, const char* model, const char* summary,
                           ExampleOf example = ExampleOf::nothing) {
  return {{family, model},
          summary,
          example,
          [](const ModelConfig& config, ParamScope scope) -> std::unique_ptr<Model> {
            return std::make_unique<M>(part_of<typename M::Config>(config), scope);
          },
          [](ModelConfig& config) {
            if constexpr (requires { &M::fit_to_sizes; })
              change_part<typename M::FamilyKeys>(config, M::fit_to_sizes);
          }};
}

constexpr const char *kRecurrent = "recurrent_transformer", *kBlock = "block_recurrent",
                     *kBlockwise = "blockwise_recurrent", *kStaircase = "staircase";

constexpr FamilyEntry kFamilies[] = {
    family<recurrent_transformer::Keys, recurrent_transformer::describe, recurrent_transformer::check,
           recurrent_transformer::choose_sizes>(kRecurrent),
    family<block_recurrent::Keys, block_recurrent::describe, block_recurrent::check,
           block_recurrent::choose_sizes, block_recurrent::fill>(kBlock),
    family<blockwise_recurrent::Keys, blockwise_recurrent::describe, blockwise_recurrent::check,
           blockwise_recurrent::choose_sizes, blockwise_recurrent::fill>(kBlockwise),
    family<staircase::Keys, staircase::describe, staircase::check, staircase::choose_sizes, staircase::fill>(
        kStaircase),
};

constexpr ModelEntry kModels[] = {
    entry<UnitForget>(kRecurrent, "unit_forget", "unit recurrence with forget: state of one position",
                      ExampleOf::recurrence),
    entry<BlockForget>(kRecurrent, "block_forget", "block recurrence with forget: state of one block",
                       ExampleOf::recurrence),
    entry<BlockAccumulate>(kRecurrent, "block_accumulate",
                           "block recurrence with accumulate: outputs are spread forward"),
    entry<RegularTransformer>(kRecurrent, "regular", "the regular causal transformer",
                              ExampleOf::plain_attention),
    entry<BlockRecurrent>(kBlock, "slide",
                          "sliding-window transformer: gradients between the blocks of a segment"),
    entry<BlockRecurrent>(kBlock, "xl", "one window per segment, keys of the last one cached"),
    entry<BlockRecurrent>(kBlock, "vanilla", "one window per segment, no cache"),
    entry<BlockRecurrent>(kBlock, "block_recurrent",
                          "recurrent cells over blocks of tokens, optionally with feedback",
                          ExampleOf::recurrence),
    entry<BlockRecurrent>(kBlock, "memorizing", "external memory of past keys and values"),
    entry<MemoryLlama>(kBlockwise, "memory_llama",
                       "Llama whose layers attend over a chunk and a memory of it", ExampleOf::recurrence),
    entry<CausalLlama>(kBlockwise, "llama", "Llama: rotary positions, RMS norms, gated MLP"),
    entry<CausalLlama>(kBlockwise, "llama_window", "the same weights, each token seeing a window of keys"),
    entry<Staircase>(kStaircase, "staircase", "a window of chunks, each advanced by one pass per step",
                     ExampleOf::recurrence),
    entry<Staircase>(kStaircase, "cached_staircase", "the same with chunks frozen after some passes"),
    entry<StaircaseXl>(kStaircase, "ladder", "the stack applied several times to a whole segment"),
    entry<StaircaseXl>(kStaircase, "transformer_xl",
                       "a segment at a time, with the inputs of each layer remembered"),
    entry<StaircaseFeedback>(kStaircase, "feedback",
                             "token by token, all layers attending to one mixed memory"),
    entry<StaircaseXl>(kStaircase, "universal", "one layer applied several times"),
    entry<StaircaseLstm>(kStaircase, "lstm", "a stack of LSTM layers"),
};

}  // namespace

std::span<const FamilyEntry> family_registry() {
  return kFamilies;
}

std::span<const ModelEntry> model_registry() {
  return kModels;
}

}  // namespace eddy
