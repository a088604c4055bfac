// The costs of a token in the staircase family.
#include "train/reproduce/staircase_costs.h"

#include "models/model.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr double kFlopsPerMac = 2;
constexpr double kBytesPerNumber = 4;

// The sizes named in the header, as doubles.
struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : width(static_cast<double>(c.dim)),
        inner(static_cast<double>(c.heads * c.head_dim)),
        mlp(static_cast<double>(c.mlp_dim)),
        layers(static_cast<double>(c.layers)),
        segment(static_cast<double>(c.segment)),
        span(static_cast<double>(c.span)),
        logits(static_cast<double>(c.n_out)) {}

  // One call of a layer for one query that sees `keys` keys.
  double layer_flops(double keys) const { return 8 * width * inner + 4 * width * mlp + 6 * keys * inner; }
  double key_value_flops() const { return 4 * width * inner; }
  // Numbers that one call of a layer needs for its backward pass: for the row of a query, and for a row that
  // is only context.
  double row_numbers() const { return 4 * width + 4 * inner + mlp; }
  double context_numbers() const { return 2 * width + 2 * inner; }

  double width, inner, mlp, layers, segment, span, logits;
};

void add_staircase(const ModelConfig& c, const Sizes& s, StaircaseCosts& costs) {
  const auto steps = static_cast<double>(c.steps), chunk = static_cast<double>(c.chunk);
  const double passes = c.model == "staircase" ? steps : static_cast<double>(c.cache_after);
  const double frozen = steps - passes, carried = chunk * passes * (passes - 1) / 2 / s.segment;
  costs.formula_flops +=
      s.layers * (passes * s.layer_flops(steps * chunk) + (frozen + carried) * s.key_value_flops());
  costs.needed_bytes += s.layers * (passes * s.row_numbers() + carried * s.context_numbers());
  if (frozen > 0) {
    // The final state of every chunk becomes keys and values: that of the last chunk only in the next
    // segment, and those of the N-1 carried chunks in this one. Their norm has one input for all layers.
    const double done = (steps - 1) * chunk / s.segment, all = 1 - chunk / s.segment + done;
    costs.needed_bytes += s.layers * all * (s.width + 2 * s.inner) + done * s.width;
  }
}

void add_xl(const ModelConfig& c, const Sizes& s, StaircaseCosts& costs) {
  const double calls = s.layers * (c.model == "transformer_xl" ? 1 : static_cast<double>(c.repeats));
  const double memory = s.span / s.segment;
  costs.formula_flops += calls * (s.layer_flops(s.span) + memory * s.key_value_flops());
  costs.needed_bytes += calls * (s.row_numbers() + memory * s.context_numbers());
}

void add_feedback(const ModelConfig& c, const Sizes& s, StaircaseCosts& costs) {
  costs.formula_flops += s.layers * s.layer_flops(s.span);
  // Keys and values come from the memories: the carried ones, and those of the segment except its last. The
  // states that are mixed into one memory are the outputs of the layers, which are kept anyway except for the
  // last.
  const double memories = 1 - 1 / s.segment + s.span / s.segment;
  const double owners = c.shared_kv ? 1 : s.layers;
  costs.needed_bytes += s.layers * (s.row_numbers() - 2 * s.inner) +
                        memories * (owners * (s.width + 2 * s.inner) + s.width) + s.width;
}

}  // namespace

StaircaseCosts staircase_costs(const ModelConfig& config) {
  StaircaseCosts costs;
  const ModelConfig full = resolved(config);
  const Sizes sizes(full);
  if (full.model == "staircase" || full.model == "cached_staircase")
    add_staircase(full, sizes, costs);
  else if (full.model == "transformer_xl" || full.model == "ladder" || full.model == "universal")
    add_xl(full, sizes, costs);
  else if (full.model == "feedback")
    add_feedback(full, sizes, costs);
  else
    fail<ConfigError>("costs: {} is no attention model of the staircase family", full.model);
  costs.formula_flops += 2 * sizes.width * sizes.logits;
  costs.needed_bytes += 2 * sizes.width + sizes.logits;
  costs.needed_bytes *= kBytesPerNumber;
  ParamStore counted;  // declares the parameters without allocating them
  for (const ModelEntry& entry : model_registry())
    if (entry.family == full.family && entry.model == full.model)
      costs.flops = kFlopsPerMac * entry.make(full, counted.root())->forward_macs_per_token(full.segment);
  return costs;
}

}  // namespace eddy
