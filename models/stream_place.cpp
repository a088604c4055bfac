// The place of a stream, by model.
#include "models/stream_place.h"

namespace eddy {

std::optional<std::vector<std::int64_t>> stream_place(const ModelConfig& config, const State& state) {
  const std::string& model = config.model;
  for (const char* other : {"regular", "llama", "llama_window"})
    if (model == other) return std::nullopt;
  if (config.positions) return std::nullopt;
  const Tensor* const found = state.find("position");
  const std::int64_t position = found == nullptr ? 0 : found->item_int();
  if (model == "unit_forget") return std::vector<std::int64_t>{position > 0 ? 1 : 0};
  if (has_blocks(config)) return std::vector<std::int64_t>{position % config.block};
  if (config.family == "block_recurrent") {
    // Without cached keys, with states that are cleared per segment, or with a memory that is written at the
    // end of a segment, the place in the segment decides; else that in the window.
    const std::int64_t segment = config.segment > 0 ? config.segment : config.context,
                       window = config.window > 0 ? config.window : segment;
    const bool by_segment =
        !config.cache || model == "vanilla" || model == "memorizing" || config.clear_state;
    return std::vector<std::int64_t>{position % (by_segment ? segment : window)};
  }
  // The others keep counts of what is filled, which stay below a bound.
  std::vector<std::int64_t> place;
  for (const auto& [name, tensor] : state) {
    if (!(tensor.device() == kCpu) || tensor.dtype() != Dtype::i64) continue;
    for (const std::int64_t number : raw::contiguous(tensor).to_vector<std::int64_t>())
      place.push_back(number);
  }
  // The staircase's third count is that of its segment, which only the official carry ends.
  const bool chunks = model == "staircase" || model == "cached_staircase";
  if (chunks && config.carry != "official" && place.size() > 2) place.resize(2);
  return place;
}

}  // namespace eddy
