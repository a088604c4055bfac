// The search for a width: the number of parameters grows with it, so that halving an interval finds the last width
// below a number. Counting allocates nothing.
#include "models/eddy/fit_params.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr double kTolerance = 0.03;
constexpr double kClose = 0.01;  // near enough to stop looking among finer widths
constexpr std::int64_t kMostWidth = 1 << 20;

struct Size {
  std::int64_t dim = 0, mlp_dim = 0, count = 0;
};

class Search {
 public:
  Search(const ModelConfig& config, std::int64_t target) : config_(config), target_(target) {}

  Size find() {
    const std::int64_t heads = reads_key(config_, "heads") ? config_.heads : 1;
    std::int64_t finest = 0;
    for (const std::int64_t of_head : {16, 8, 4, 2, 1}) {
      const std::int64_t step = of_head * heads;
      if (!count_at(step, config_.mlp_dim)) continue;
      finest = step;
      const std::int64_t last = last_below(step);
      for (const std::int64_t width : {last, last + step})
        if (width > 0) consider(width, config_.mlp_dim);
      if (nearest_ && distance(*nearest_) <= kClose) return *nearest_;
    }
    if (nearest_ && distance(*nearest_) <= kTolerance) return *nearest_;
    if (finest > 0 && config_.mlp_dim == 0 && reads_key(config_, "mlp_dim")) fit_mlp(last_below(finest));
    if (nearest_ && distance(*nearest_) <= kTolerance) return *nearest_;
    refuse();
  }

 private:
  double distance(const Size& size) const {
    return std::abs(static_cast<double>(size.count - target_)) / static_cast<double>(target_);
  }

  // Nothing if the rules between keys refuse the sizes.
  std::optional<std::int64_t> count_at(std::int64_t dim, std::int64_t mlp_dim) {
    ModelConfig config = config_;
    config.dim = dim;
    config.mlp_dim = mlp_dim;
    try {
      return count_parameters(config).count();
    } catch (const ConfigError& refused) {
      refusal_ = refused.what();
      return std::nullopt;
    }
  }

  void consider(std::int64_t dim, std::int64_t mlp_dim) {
    const std::optional<std::int64_t> count = count_at(dim, mlp_dim);
    if (!count) return;
    const Size size{dim, mlp_dim, *count};
    std::optional<Size>& side = *count <= target_ ? below_ : above_;
    if (!side || distance(size) < distance(*side)) side = size;
    if (!nearest_ || distance(size) < distance(*nearest_)) nearest_ = size;
  }

  // The largest multiple of `step` with at most `target` parameters; 0 if there is none.
  std::int64_t last_below(std::int64_t step) {
    const auto fits = [&](std::int64_t n) {
      const auto count = count_at(n * step, config_.mlp_dim);
      return count && *count <= target_;
    };
    if (!fits(1)) return 0;
    std::int64_t low = 1, high = 2;
    while (high * step < kMostWidth && fits(high)) {
      low = high;
      high *= 2;
    }
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    return low * step;
  }

  // The number of parameters grows by the same number with each unit of an MLP.
  void fit_mlp(std::int64_t dim) {
    const auto one = count_at(dim, 1), two = count_at(dim, 2);
    if (!one || !two || *two <= *one) return;
    const std::int64_t units = 1 + (target_ - *one) / (*two - *one);
    for (const std::int64_t mlp_dim : {units, units + 1})
      if (mlp_dim > 0) consider(dim, mlp_dim);
  }

  [[noreturn]] void refuse() const {
    const auto text = [](const Size& size) {
      return fmt::format("{} with model.dim = {}{}", size.count, size.dim,
                         size.mlp_dim > 0 ? fmt::format(", model.mlp_dim = {}", size.mlp_dim) : "");
    };
    if (!nearest_) fail<ConfigError>("config: model.params = {} finds no width: {}", target_, refusal_);
    fail<ConfigError>(
        "config: {} cannot have model.params = {} within 3 %: the nearest are {}{}{} (change the number, or "
        "model.heads, whose multiples the widths are)",
        config_.model, target_, below_ ? text(*below_) : "", below_ && above_ ? " and " : "",
        above_ ? text(*above_) : "");
  }

  const ModelConfig& config_;
  const std::int64_t target_;
  std::optional<Size> below_, above_, nearest_;
  std::string refusal_;
};

}  // namespace

void fit_params(ModelConfig& config) {
  if (config.params == 0) return;
  ModelConfig searched = config;
  searched.params = 0;
  const Size found = Search(searched, config.params).find();
  config = searched;
  config.dim = found.dim;
  config.mlp_dim = found.mlp_dim;
}

}  // namespace eddy
