// The trials of kernels that may stand in the place of plain ones: each against the plain one on the same numbers, with
// a tape, then both timed.
//
// Tolerances are in units of 2^-8, the rounding of bf16, of the largest number; of attention in TF32 in units of 2^-11.
// Attention on tensor cores may be off by 4 of them, and by 16 in a gradient, from exact numbers
// (tests/gpu/test_gpu_attention_tensor_core.cpp derives them), and the plain kernel adds its own rounding. Chains of
// products are compared with f32: a kernel may be off by four times what the plain one is.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "ops/attention/attention.h"
#include "ops/backends.h"
#include "ops/core/op_check.h"
#include "ops/core/product_algorithms.h"
#include "ops/core/warnings.h"
#include "ops/product/linear.h"
#include "tensor/base/format.h"
#include "train/app/measure/bench.h"
#include "train/app/measure/kernels/trials.h"
#include "train/config/new_config.h"

namespace eddy::app {
using namespace training;
namespace {

using spec_check::bit_difference;
using spec_check::difference;
using spec_check::evaluate;
using spec_check::inputs_on;

constexpr double kRounding = 0x1p-8;
constexpr std::int64_t kFar = AttentionBand::kFar;
using Work = std::function<Tensors()>;  // results and gradients on the GPU

// The inputs as leaves that share their memory.
Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(require_grad(raw::alias(input)));
  return leaves;
}

// y, and behind it the gradients of the leaves for dy.
Tensors with_gradients(const Tensor& y, const Tensor& dy, const Tensors& leaves) {
  backward(y, dy);
  Tensors results{detach(y)};
  for (const Tensor& leaf : leaves) results.push_back(grad(leaf));
  return results;
}

// What work gives under a choice of kernels, on the CPU. Warnings are those of this call.
Tensors under(const std::string& choice, const Work& work) {
  set_gpu_kernels(choice);
  Tensors results = work();
  for (Tensor& x : results)
    if (x.defined()) x = raw::to_device(x, kCpu);
  return results;
}

bool was_left_out(std::vector<std::string>* why) {
  *why = take_warnings();
  return !why->empty();
}
// Leaves this warning alone for the next who takes warnings; one that was taken before would not be added again.
void leave_out(const std::string& why) {
  reset_warnings();
  add_warning(why);
}

// Times the work under the choice and under the plain one.
TrialTime timed(const std::string& what, const std::string& choice, const Work& work, Device gpu,
                const TrialSizes& sizes, const std::string& plain = "plain") {
  TrialTime time{what, 0, 0};
  const auto run = [&] { static_cast<void>(work()); };
  const auto run_alone = [&] {
    run();
    synchronize(gpu);
  };
  for (double* ms : {&time.plain_ms, &time.ms}) {
    set_gpu_kernels(ms == &time.ms ? choice : plain);
    const Timing timing =
        sizes.small ? measure(run_alone, sizes.seconds, 1) : measure_on(gpu, run, sizes.seconds);
    *ms = timing.best * 1e3;
  }
  return time;
}

// ---- attention ---------------------------------------------------------------------------------------------

struct Case {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size, least, most;
  bool tables;
  double dropout;
  bool bias = true, positions = true;  // among the tables
};
// Tails of tiles, bands, grouped heads, heads of every kind of size, each with more and with fewer than 64 queries.
constexpr Case kCases[] = {
    {1, 5, 7, 2, 1, 48, -kFar, kFar, false, 0.3}, {2, 33, 33, 4, 2, 48, 0, kFar, true, 0.3},
    {1, 65, 130, 1, 1, 64, 0, 40, true, 0.3},     {1, 200, 200, 2, 1, 128, 0, kFar, false, 0},
    {1, 130, 260, 2, 1, 32, 1, 130, true, 0},     {1, 70, 131, 2, 2, 112, 1, 60, false, 0},
    {2, 512, 1024, 8, 2, 64, 0, 512, true, 0.3},  {2, 1024, 1024, 4, 4, 128, 0, kFar, false, 0},
};
constexpr std::size_t kSmallCases = 6;
// Without a bias, as positions by products are: tails, bands, grouped heads, and rows of a staircase.
constexpr Case kPositionCases[] = {
    {2, 33, 33, 4, 2, 48, 0, kFar, true, 0.3, false},   {1, 65, 130, 1, 1, 64, 0, 40, true, 0.3, false},
    {1, 130, 260, 2, 1, 32, 1, 130, true, 0, false},    {1, 130, 200, 2, 1, 128, 0, 128, true, 0.3, false},
    {2, 512, 1024, 8, 2, 64, 0, 512, true, 0.3, false}, {8, 256, 256, 8, 8, 64, 0, kFar, true, 0.3, false},
};
constexpr std::size_t kSmallPositionCases = 4;
// Without positions: tails, bands, grouped heads, a band of a block recurrence, whole sequences.
constexpr Case kWideCases[] = {
    {1, 70, 131, 2, 2, 112, 1, 60, true, 0.3, true, false},
    {1, 200, 200, 2, 1, 128, 0, kFar, false, 0},
    {2, 130, 260, 2, 1, 80, 1, 130, true, 0, true, false},
    {2, 512, 1024, 8, 2, 128, 0, 512, true, 0.3, true, false},
    {2, 1024, 1024, 4, 4, 128, 0, kFar, false, 0},
};
constexpr std::size_t kSmallWideCases = 3;

// Without positions, as one kernel for all gradients takes them: tails, bands, grouped heads, a bias, many tiles.
constexpr Case kFusedCases[] = {
    {1, 70, 131, 4, 2, 48, -kFar, kFar, false, 0.3},
    {1, 130, 260, 2, 2, 32, 1, 130, true, 0.3, true, false},
    {1, 200, 330, 1, 1, 128, 0, 100, true, 0, true, false},
    {2, 1024, 1024, 4, 4, 64, 0, kFar, false, 0.3},
    {2, 1024, 1536, 4, 4, 128, 0, 512, true, 0.3, true, false},
};
constexpr std::size_t kSmallFusedCases = 3;

// What attention is tried in. Inputs are numbers of bf16 in both, which products in TF32 take as they are.
struct NumberKind {
  Dtype dtype;
  MatmulPrecision precision;
  double rounding;
};
constexpr NumberKind kInBf16{Dtype::bf16, MatmulPrecision::f32, kRounding},
    kInTf32{Dtype::f32, MatmulPrecision::tf32, 0x1p-11};

// y, then the gradients of q, k, v, the bias, the positions and the heads' scales.
Work attention_work(const Case& c, Device gpu, const NumberKind& in = kInBf16) {
  const auto normal = [&](const Shape& shape, const char* name, Dtype dtype, double deviation) {
    const Tensor rounded = raw::cast(sample_normal(shape, name, deviation), Dtype::bf16);
    return raw::to_device(raw::cast(rounded, dtype), gpu);
  };
  const Shape keys{c.batch, c.keys, c.kv_heads, c.head_size},
      queries{c.batch, c.queries, c.heads, c.head_size};
  Tensors inputs{normal(queries, "q", in.dtype, 1), normal(keys, "k", in.dtype, 1),
                 normal(keys, "v", in.dtype, 1)};
  if (c.tables) {
    const std::int64_t distances = std::min(c.most, c.keys - 1) + 1;
    inputs.push_back(normal({c.heads, distances}, "bias", Dtype::f32, 1));
    inputs.push_back(normal({distances, c.head_size}, "positions", Dtype::f32, 0.3));
    inputs.push_back(normal({c.heads}, "scale", Dtype::f32, 1));
  }
  const Tensor dy = normal(queries, "dy", in.dtype, 1);
  return [c, inputs, dy, precision = in.precision] {
    const Tensors x = leaves_of(inputs);
    AttentionOptions options;
    options.precision = precision;
    options.band = {c.least, c.most};
    options.dropout = c.dropout;
    options.dropout_key = random_key(3, "kernel trial", 7);
    if (c.tables) {
      if (c.bias) options.bias = x[3];
      if (c.positions) options.positions = x[4];
      options.head_scale = x[5];
    }
    const Tensor y = attention_bthd(x[0], x[1], x[2], options);
    return with_gradients(y, dy, x);
  };
}

// The gradient of the heads' scales has terms of both signs: it is held to the sum of the sizes of those of q, as a
// head's scale scales its scores as q does.
std::string scale_difference(const Tensor& got, const Tensor& want, const Tensor& dq, double rounding) {
  double terms = 0;
  for (const double value : raw::cast(dq, Dtype::f64).to_vector<double>()) terms += std::abs(value);
  const auto a = raw::cast(got, Dtype::f64).to_vector<double>(),
             b = raw::cast(want, Dtype::f64).to_vector<double>();
  for (std::size_t head = 0; head < b.size(); ++head)
    if (!(std::abs(a[head] - b[head]) <= 20 * rounding * terms))
      return fmt::format("gradient of head_scale, head {}: {:.6g} and plain {:.6g}", head, a[head], b[head]);
  return "";
}

std::string try_case(const std::string& choice, const Case& c, Device gpu, const NumberKind& in) {
  const Work work = attention_work(c, gpu, in);
  const Tensors want = under("plain", work), got = under(choice, work);
  std::vector<std::string> warnings;
  const bool left_out = was_left_out(&warnings);
  const std::string where = fmt::format("[{}, {}, {}, {}] to {} keys of {} heads, band {} to {}", c.batch,
                                        c.queries, c.heads, c.head_size, c.keys, c.kv_heads, c.least, c.most);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!want[i].defined()) continue;  // of a table that is not read
    constexpr const char* kParts[] = {"y", "dq", "dk", "dv", "dbias", "dpositions", "dhead_scale"};
    std::string wrong = i == 6 ? scale_difference(got[i], want[i], want[1], in.rounding)
                               : difference(fmt::format("{} of {}", kParts[i], where), got[i], want[i],
                                            i == 0 ? 5 : 20, in.rounding);
    if (!wrong.empty()) return wrong;
  }
  const Tensors again = under(choice, work);
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::string wrong = want[i].defined() ? bit_difference(where + " again", again[i], got[i]) : "";
        !wrong.empty())
      return wrong;
  if (left_out) leave_out(warnings.front());
  return "";
}

// "" or what is wrong with the first of the cases that is. Ends at one that is left out.
std::string try_cases(const std::string& choice, std::span<const Case> cases, Device gpu, bool* left_out,
                      const NumberKind& in = kInBf16) {
  for (const Case& c : cases) {
    if (std::string wrong = try_case(choice, c, gpu, in); !wrong.empty()) return wrong;
    std::vector<std::string> warnings;
    if (!was_left_out(&warnings)) continue;
    leave_out(warnings.front());
    *left_out = true;
    break;
  }
  return "";
}

// ---- models with block recurrences and with the unit recurrence --------------------------------------------

// A preset's model with other sizes; one layer.
struct ModelCase {
  const char* preset;
  std::int64_t batch, time, dim, heads;
  double dropout;
  std::int64_t block = 0;  // of a model of blocks
};
// Short last blocks, windows that are not whole tiles, heads of 8, 12 and 16 numbers.
constexpr ModelCase kBlockCases[] = {
    {"copy", 3, 13, 32, 4, 0.2, 5},
    {"cifar_block", 3, 13, 32, 4, 0.2, 5},
    {"copy", 5, 50, 96, 8, 0, 20},
    {"cifar_block", 5, 50, 96, 6, 0, 20},
};
constexpr std::size_t kSmallBlockCases = 2;
// The width and the blocks of the presets, and fewer positions.
constexpr ModelCase kTimedBlocks[] = {{"copy", 64, 256, 96, 6, 0, 32},
                                      {"cifar_block", 256, 256, 32, 4, 0, 32}};
// Tails of tiles of rows and of columns; heads of 8, 12 and 64 numbers.
constexpr ModelCase kUnitCases[] = {
    {"shakespeare_unit", 3, 5, 32, 4, 0.2},
    {"shakespeare_unit", 37, 3, 72, 6, 0},
    {"shakespeare_unit", 40, 6, 384, 6, 0.1},
};
constexpr std::size_t kSmallUnitCases = 2;
// The preset, at the two batches of `eddy bench speed` and fewer positions.
constexpr ModelCase kTimedUnits[] = {{"shakespeare_unit", 256, 64, 384, 6, 0},
                                     {"shakespeare_unit", 1024, 64, 384, 6, 0}};

// Logits, then the gradients of all parameters.
Work model_work(const ModelCase& c, Dtype dtype, Device gpu) {
  constexpr std::int64_t kVocabulary = 11;
  ModelConfig config = preset_model(c.preset, "kernels");
  config.vocab = config.n_out = kVocabulary;
  config.context = c.time;
  config.dim = c.dim;
  config.heads = c.heads;
  config.mlp_dim = 4 * c.dim;
  config.layers = 1;
  if (c.block > 0) config.block = c.block;
  config.positions = true;
  config.readout = value_name(Readout::all);
  // 0.2 at width 32, and the same growth per product at others: with more, 32 steps turn roundings into other results.
  config.init_std = 0.2 * std::sqrt(32.0 / static_cast<double>(c.dim));
  config.dropout = c.dropout;
  const std::shared_ptr<Model> model = make_model(config, dtype, gpu);
  model->params().initialize(5);
  const RandomKey key = random_key(9, "kernel trial", 0);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < c.batch * c.time; ++i)
    ids.push_back(key.word(static_cast<std::uint64_t>(i)) % kVocabulary);
  ForwardInput input;
  input.tokens = raw::to_device(Tensor::from(ids, {c.batch, c.time}), gpu);
  if (c.dropout > 0) input.dropout = {true, 3, 4, nullptr};
  const Tensor dy =
      raw::to_device(raw::cast(sample_normal({c.batch, c.time, kVocabulary}, "dlogits"), dtype), gpu);
  return [model, input, dy] {
    const Tensor logits = model->forward(input).logits;
    model->params().zero_gradients();
    backward(logits, dy);
    Tensors results{detach(logits)};
    for (const Parameter& parameter : model->params().parameters())
      results.push_back(raw::copy(grad(parameter.value)));
    return results;
  };
}

double distance(const Tensor& a, const Tensor& b, double* largest) {
  const auto x = raw::cast(a, Dtype::f64).to_vector<double>(),
             y = raw::cast(b, Dtype::f64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!(std::abs(x[i] - y[i]) <= worst)) worst = std::abs(x[i] - y[i]);  // also a NaN
    if (std::isnan(worst)) break;
    *largest = std::max(*largest, std::abs(y[i]));
  }
  return worst;
}

// "" or what is wrong with rounded results beside those in f32: more than four times what the plain kernel is off by,
// or, where that is little, than four roundings.
std::string rounded_difference(const std::string& where, const Tensors& got, const Tensors& plain,
                               const Tensors& exact) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    double largest = 0;
    const double off = distance(got[i], exact[i], &largest),
                 allowed = 4 * std::max(distance(plain[i], exact[i], &largest), kRounding * largest);
    if (!(off <= allowed))
      return fmt::format("part {} of {} is off by {:.3g} (plain kernels allow {:.3g})", i, where, off,
                         allowed);
  }
  return "";
}

// "" or what is wrong with work in bf16 beside the plain kernels' results in f32; it must repeat its bits.
std::string try_in_bf16(const std::string& where, const std::string& choice, const Work& work,
                        const Tensors& exact) {
  const Tensors plain = under("plain", work), got = under(choice, work), again = under(choice, work);
  if (std::string wrong = rounded_difference(where + " in bf16", got, plain, exact); !wrong.empty())
    return wrong;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::string wrong = bit_difference(where + " again", again[i], got[i]); !wrong.empty()) return wrong;
  return "";
}

std::string text_of(const ModelCase& c) {
  return fmt::format("{}, {} x {}, width {}", c.preset, c.batch, c.time, c.dim);
}

// ---- products ----------------------------------------------------------------------------------------------

struct ProductCase {
  std::int64_t rows, in, out;
};
constexpr ProductCase kSmallProducts[] = {{40, 24, 16}, {33, 64, 48}, {256, 128, 72}},
                      // The unit recurrence's, and a gradient of weights of many tokens.
    kNarrowProducts[] = {{256, 384, 1536}, {256, 1536, 384}, {16384, 96, 384}};

// Normals that bf16 can hold.
Tensor product_input(const Shape& shape, const char* name, Dtype dtype, Device gpu, double deviation = 1) {
  const Tensor rounded = raw::cast(sample_normal(shape, name, deviation), Dtype::bf16);
  return raw::to_device(raw::cast(rounded, dtype), gpu);
}
Tensor weight_input(std::int64_t in, std::int64_t out, const char* name, Device gpu) {
  return product_input({out, in}, name, Dtype::f32, gpu, 1 / std::sqrt(static_cast<double>(in)));
}

// linear with a residual: y, then the gradients of the residual, x, weight and bias.
Work product_work(std::int64_t rows, std::int64_t in, std::int64_t out, Dtype dtype, Device gpu) {
  const auto normal = [&](const Shape& shape, const char* name, Dtype as) {
    return product_input(shape, name, as, gpu);
  };
  const Tensors inputs{normal({rows, out}, "residual", dtype), normal({rows, in}, "x", dtype),
                       weight_input(in, out, "w", gpu), normal({out}, "b", Dtype::f32)};
  const Tensor dy = normal({rows, out}, "dy", dtype);
  return [inputs, dy] {
    const Tensors x = leaves_of(inputs);
    LinearOptions options;
    options.residual = x[0];
    const Tensor y = linear(x[1], x[2], x[3], options);
    return with_gradients(y, dy, x);
  };
}

// "" or what is wrong with the first of the products that is.
std::string try_product_cases(const std::string& choice, std::span<const ProductCase> cases, Device gpu) {
  for (const auto& [rows, in, out] : cases) {
    const std::string where = fmt::format("linear [{}, {}] to {} with a residual", rows, in, out);
    const Tensors exact = under("plain", product_work(rows, in, out, Dtype::f32, gpu));
    const Work work = product_work(rows, in, out, Dtype::bf16, gpu);
    if (std::string wrong = try_in_bf16(where, choice, work, exact); !wrong.empty()) return wrong;
  }
  return "";
}

// An MLP with GELU and a residual: y, then the gradients of x, both weights and biases, and the residual. `out` is the
// width of the activation.
Work gelu_work(const ProductCase& c, Dtype dtype, Device gpu) {
  const Tensors inputs{product_input({c.rows, c.in}, "x", dtype, gpu),
                       weight_input(c.in, c.out, "up", gpu),
                       product_input({c.out}, "up bias", Dtype::f32, gpu),
                       weight_input(c.out, c.in, "down", gpu),
                       product_input({c.in}, "down bias", Dtype::f32, gpu),
                       product_input({c.rows, c.in}, "residual", dtype, gpu)};
  const Tensor dy = product_input({c.rows, c.in}, "dy", dtype, gpu);
  return [inputs, dy] {
    const Tensors x = leaves_of(inputs);
    const Tensor y = linear(linear(x[0], x[1], x[2], {.gelu = true}), x[3], x[4], {.residual = x[5]});
    return with_gradients(y, dy, x);
  };
}
// Rows and columns that end within a tile, a depth that ends within a step; layers of 384 and 768 numbers.
constexpr ProductCase kGeluCases[] = {
    {1030, 24, 1032}, {4100, 72, 520}, {16384, 384, 1536}, {8192, 768, 3072}};
constexpr std::size_t kSmallGeluCases = 1;

}  // namespace

std::string try_samples(const std::string& choice, Device gpu, const TrialSizes& sizes,
                        std::vector<TrialTime>& times) {
  const std::string name = choice.substr(0, choice.find('='));
  std::vector<std::string> left_out;
  bool found = false;
  for (const OpSpec& spec : op_specs()) {
    if (spec.name != name && !spec.name.starts_with(name + "_")) continue;
    found = true;
    if (std::string wrong = try_op(spec.name, gpu, choice); !wrong.empty()) return wrong;
    take_warnings();  // a sample may be of a size that the kernel leaves to another one
    if (!spec.bench) continue;
    const Tensors inputs = inputs_on(sizes.small ? spec.samples.front().inputs : spec.bench(), gpu);
    times.push_back(timed(
        spec.name, choice, [&] { return evaluate(spec, inputs).results; }, gpu, sizes));
    if (std::vector<std::string> warnings; was_left_out(&warnings)) left_out = warnings;
  }
  if (!found) fail<ValueError>("kernels: there is no op '{}' whose samples try {}", name, choice);
  if (!left_out.empty()) leave_out(left_out.front());
  return "";
}

std::string try_attention(const std::string& choice, Device gpu, const TrialSizes& sizes,
                          std::vector<TrialTime>& times) {
  bool left_out = false;
  const std::span<const Case> cases(kCases, sizes.small ? kSmallCases : std::size(kCases));
  if (std::string wrong = try_cases(choice, cases, gpu, &left_out); !wrong.empty() || left_out) return wrong;
  // Twelve heads of 64, as many as GPT-2 has: whole sequences, then blocks that look at the sequence before them.
  const Case whole = sizes.small ? Case{1, 65, 65, 1, 1, 32, 0, kFar, false, 0}
                                 : Case{8, 1024, 1024, 12, 12, 64, 0, kFar, false, 0},
             block = sizes.small ? Case{1, 8, 16, 1, 1, 32, 0, kFar, false, 0}
                                 : Case{64, 64, 128, 12, 12, 64, 0, kFar, false, 0};
  times.push_back(timed("attention", choice, attention_work(whole, gpu), gpu, sizes));
  times.push_back(timed("short_attention", choice, attention_work(block, gpu), gpu, sizes));
  return "";
}

std::string try_tf32_attention(const std::string& choice, Device gpu, const TrialSizes& sizes,
                               std::vector<TrialTime>& times) {
  bool left_out = false;
  const std::span<const Case> cases(kCases, sizes.small ? kSmallCases : std::size(kCases));
  if (std::string wrong = try_cases(choice, cases, gpu, &left_out, kInTf32); !wrong.empty() || left_out)
    return wrong;
  const Case whole = sizes.small ? Case{1, 65, 65, 1, 1, 32, 0, kFar, false, 0}
                                 : Case{8, 1024, 1024, 12, 12, 64, 0, kFar, false, 0};
  times.push_back(timed("tf32_attention", choice, attention_work(whole, gpu, kInTf32), gpu, sizes));
  return "";
}

// Beside attention by wgmma. Where a GPU has none, that is left out, and positions with it.
std::string try_positions(const std::string& choice, Device gpu, const TrialSizes& sizes,
                          std::vector<TrialTime>& times) {
  const std::string attention = "attention=wgmma,", plain = attention + "positions=plain";
  bool left_out = false;
  const std::span<const Case> cases(kPositionCases,
                                    sizes.small ? kSmallPositionCases : std::size(kPositionCases));
  if (std::string wrong = try_cases(attention + choice, cases, gpu, &left_out); !wrong.empty() || left_out)
    return wrong;
  // A row of the staircase's text.
  const Case row = sizes.small ? Case{1, 65, 65, 1, 1, 32, 0, kFar, true, 0, false}
                               : Case{32, 256, 256, 8, 8, 64, 0, kFar, true, 0, false};
  times.push_back(timed("positions", attention + choice, attention_work(row, gpu), gpu, sizes, plain));
  return "";
}

// Beside attention by wgmma, too.
std::string try_wide_attention(const std::string& choice, Device gpu, const TrialSizes& sizes,
                               std::vector<TrialTime>& times) {
  const std::string attention = "attention=wgmma,", plain = attention + "wide_attention=plain";
  bool left_out = false;
  const std::span<const Case> cases(kWideCases, sizes.small ? kSmallWideCases : std::size(kWideCases));
  if (std::string wrong = try_cases(attention + choice, cases, gpu, &left_out); !wrong.empty() || left_out)
    return wrong;
  // A band of 512 with a bias, as block recurrences have.
  const Case row = sizes.small ? Case{1, 65, 65, 1, 1, 80, 0, kFar, true, 0, true, false}
                               : Case{8, 1024, 1536, 8, 8, 128, 0, 511, true, 0, true, false};
  times.push_back(timed("wide_attention", attention + choice, attention_work(row, gpu), gpu, sizes, plain));
  return "";
}

// Beside attention by wgmma, as positions are.
std::string try_attention_backward(const std::string& choice, Device gpu, const TrialSizes& sizes,
                                   std::vector<TrialTime>& times) {
  const std::string attention = "attention=wgmma,", plain = attention + "attention_backward=plain";
  bool left_out = false;
  const std::span<const Case> cases(kFusedCases, sizes.small ? kSmallFusedCases : std::size(kFusedCases));
  if (std::string wrong = try_cases(attention + choice, cases, gpu, &left_out); !wrong.empty() || left_out)
    return wrong;
  // Twelve heads of 64, as many as GPT-2 has; eight of 128 with a band.
  const Case whole = sizes.small ? Case{1, 65, 65, 1, 1, 32, 0, kFar, false, 0}
                                 : Case{8, 1024, 1024, 12, 12, 64, 0, kFar, false, 0},
             band = sizes.small ? Case{1, 65, 65, 1, 1, 128, 0, 40, false, 0}
                                : Case{4, 4096, 4096, 8, 8, 128, 0, 512, false, 0};
  for (const Case& c : {whole, band})
    times.push_back(
        timed("attention_backward", attention + choice, attention_work(c, gpu), gpu, sizes, plain));
  return "";
}

// In bf16 alone, which is what the kernels of these choices take. A warning that is left behind says that they did not.
std::string try_models(const std::string& choice, std::span<const ModelCase> cases,
                       std::span<const ModelCase> timed_ones, Device gpu, const TrialSizes& sizes,
                       std::vector<TrialTime>& times) {
  for (const ModelCase& c : cases)
    if (std::string wrong = try_in_bf16(text_of(c), choice, model_work(c, Dtype::bf16, gpu),
                                        under("plain", model_work(c, Dtype::f32, gpu)));
        !wrong.empty())
      return wrong;
  for (const ModelCase& c : timed_ones)
    times.push_back(timed(text_of(c), choice, model_work(c, Dtype::bf16, gpu), gpu, sizes));
  return "";
}

std::string try_recurrence(const std::string& choice, Device gpu, const TrialSizes& sizes,
                           std::vector<TrialTime>& times) {
  using Cases = std::span<const ModelCase>;
  return try_models(choice, Cases(kBlockCases, sizes.small ? kSmallBlockCases : std::size(kBlockCases)),
                    sizes.small ? Cases(kBlockCases, 1) : Cases(kTimedBlocks), gpu, sizes, times);
}

std::string try_unit_recurrence(const std::string& choice, Device gpu, const TrialSizes& sizes,
                                std::vector<TrialTime>& times) {
  using Cases = std::span<const ModelCase>;
  return try_models(choice, Cases(kUnitCases, sizes.small ? kSmallUnitCases : std::size(kUnitCases)),
                    sizes.small ? Cases(kUnitCases, 1) : Cases(kTimedUnits), gpu, sizes, times);
}

std::string try_products(const std::string& choice, Device gpu, const TrialSizes& sizes,
                         std::vector<TrialTime>& times) {
  if (std::string wrong = try_product_cases(choice, kSmallProducts, gpu); !wrong.empty()) return wrong;
  // The last product of GPT-2's layers.
  const ProductCase p = sizes.small ? ProductCase{32, 32, 32} : ProductCase{16384, 3072, 768};
  times.push_back(timed("linear", choice, product_work(p.rows, p.in, p.out, Dtype::bf16, gpu), gpu, sizes));
  return "";
}

// In bf16 alone. A warning that is left behind says that the GPU has no such kernel.
std::string try_gelu_products(const std::string& choice, Device gpu, const TrialSizes& sizes,
                              std::vector<TrialTime>& times) {
  for (const ProductCase& c : std::span(kGeluCases, sizes.small ? kSmallGeluCases : std::size(kGeluCases)))
    if (std::string wrong =
            try_in_bf16(fmt::format("an MLP with GELU, [{}, {}] to {}", c.rows, c.in, c.out), choice,
                        gelu_work(c, Dtype::bf16, gpu), under("plain", gelu_work(c, Dtype::f32, gpu)));
        !wrong.empty())
      return wrong;
  // GPT-2's layers.
  const ProductCase timed_case = sizes.small ? kGeluCases[0] : ProductCase{32768, 768, 3072};
  times.push_back(timed("MLP with GELU", choice, gelu_work(timed_case, Dtype::bf16, gpu), gpu, sizes));
  return "";
}

// Which algorithm is the fastest is found out for each shape, so there is no time that could speak for all: no program
// takes the choice before it has timed steps of its own.
std::string try_algorithms(const std::string& choice, Device gpu, const TrialSizes& sizes,
                           std::vector<TrialTime>&) {
  const ProductTiming timing;
  if (std::string wrong = try_product_cases(choice, kSmallProducts, gpu); !wrong.empty()) return wrong;
  return sizes.small ? "" : try_product_cases(choice, kNarrowProducts, gpu);
}

}  // namespace eddy::app
