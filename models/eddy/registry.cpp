// The registry: every model by family and name.
#include "models/block_recurrent/block_recurrent.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "models/recurrent_transformer/block_variant.h"
#include "models/staircase/feedback.h"
#include "models/staircase/lstm.h"
#include "models/staircase/staircase.h"
#include "models/staircase/xl.h"

namespace eddy {
namespace {

template <class M>
std::unique_ptr<Model> made(const ModelConfig& config, ParamScope scope) {
  return std::make_unique<M>(config, scope);
}

constexpr const char *kRecurrent = "recurrent_transformer", *kBlock = "block_recurrent",
                     *kBlockwise = "blockwise_recurrent", *kStaircase = "staircase";

constexpr ModelEntry kModels[] = {
    {{kRecurrent, "unit_forget"}, "unit recurrence with forget: state of one position", made<UnitForget>},
    {{kRecurrent, "block_forget"}, "block recurrence with forget: state of one block", made<BlockForget>},
    {{kRecurrent, "block_accumulate"},
     "block recurrence with accumulate: outputs are spread forward",
     made<BlockAccumulate>},
    {{kRecurrent, "regular"}, "the regular causal transformer", made<RegularTransformer>},
    {{kBlock, "slide"},
     "sliding-window transformer: gradients between the blocks of a segment",
     made<BlockRecurrent>},
    {{kBlock, "xl"}, "one window per segment, keys of the last one cached", made<BlockRecurrent>},
    {{kBlock, "vanilla"}, "one window per segment, no cache", made<BlockRecurrent>},
    {{kBlock, "block_recurrent"},
     "recurrent cells over blocks of tokens, optionally with feedback",
     made<BlockRecurrent>},
    {{kBlock, "memorizing"}, "external memory of past keys and values", made<BlockRecurrent>},
    {{kBlockwise, "memory_llama"},
     "Llama whose layers attend over a chunk and a memory of it",
     made<MemoryLlama>},
    {{kBlockwise, "llama"}, "Llama: rotary positions, RMS norms, gated MLP", made<CausalLlama>},
    {{kBlockwise, "llama_window"}, "the same weights, each token seeing a window of keys", made<CausalLlama>},
    {{kStaircase, "staircase"}, "a window of chunks, each advanced by one pass per step", made<Staircase>},
    {{kStaircase, "cached_staircase"}, "the same with chunks frozen after some passes", made<Staircase>},
    {{kStaircase, "ladder"}, "the stack applied several times to a whole segment", made<StaircaseXl>},
    {{kStaircase, "transformer_xl"},
     "a segment at a time, with the inputs of each layer remembered",
     made<StaircaseXl>},
    {{kStaircase, "feedback"},
     "token by token, all layers attending to one mixed memory",
     made<StaircaseFeedback>},
    {{kStaircase, "universal"}, "one layer applied several times", made<StaircaseXl>},
    {{kStaircase, "lstm"}, "a stack of LSTM layers", made<StaircaseLstm>},
};

}  // namespace

std::span<const ModelEntry> model_registry() {
  return kModels;
}

}  // namespace eddy
