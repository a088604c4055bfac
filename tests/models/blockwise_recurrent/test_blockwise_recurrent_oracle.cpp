// The block-wise recurrent models against their equations written as plain loops over one sequence: sections
// 2 and 3 of their specification, with rotations as products of complex numbers and a softmax over an
// explicit list of visible rows.
#include <doctest/doctest.h>

#include <complex>
#include <map>

#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// f64 sums of some hundred terms in another order, through a dozen dependent steps.
constexpr double kOracleOrder = 1e-11;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class Plain {
 public:
  explicit Plain(const Model& model) : c_(model.full_config()) {
    for (const Parameter& parameter : model.params().parameters())
      weights_[parameter.name] = numbers(parameter.value);
  }

  // Logits of one sequence; memory[layer] moves on to the last complete chunk's.
  Rows memory_llama(const std::vector<std::int64_t>& tokens, std::vector<Rows>& memory) const {
    Rows logits;
    for (std::size_t start = 0; start < tokens.size(); start += at(c_.chunk)) {
      Rows h;
      for (std::size_t t = start; t < tokens.size() && t < start + at(c_.chunk); ++t)
        h.push_back(token_row(tokens[t]));
      for (std::size_t layer = 0; layer < memory.size(); ++layer) {
        const std::string name = "layers." + std::to_string(layer) + ".";
        const std::string key = c_.memory_qkv == "shared" ? "attn.wk" : "memory.wk",
                          value = c_.memory_qkv == "shared" ? "attn.wv" : "memory.wv";
        const Rows e = evolve(name + "memory.", memory[layer]), x = norm(h, name + "attn_norm.weight");
        Rows keys = product(e, name + key + ".weight"), values = product(e, name + value + ".weight");
        for (const Row& row : product(x, name + "attn.wk.weight")) keys.push_back(row);
        for (const Row& row : product(x, name + "attn.wv.weight")) values.push_back(row);
        const Rows queries = product(x, name + "attn.wq.weight");
        Rows output;
        for (std::size_t s = 0; s < h.size(); ++s)
          output.push_back(attend(queries[s], c_.chunk + static_cast<std::int64_t>(s), keys, values, 0,
                                  c_.chunk + static_cast<std::int64_t>(s)));
        if (h.size() == at(c_.chunk)) memory[layer] = output;
        h = rest_of_layer(name, h, output);
      }
      for (const Row& row : head(h)) logits.push_back(row);
    }
    return logits;
  }

  // Each token sees the `window` last positions, its own among them.
  Rows llama(const std::vector<std::int64_t>& tokens, std::int64_t window) const {
    Rows h;
    for (const std::int64_t token : tokens) h.push_back(token_row(token));
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".";
      const Rows x = norm(h, name + "attn_norm.weight");
      const Rows queries = product(x, name + "attn.wq.weight"), keys = product(x, name + "attn.wk.weight"),
                 values = product(x, name + "attn.wv.weight");
      Rows output;
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(h.size()); ++i)
        output.push_back(
            attend(queries[at(i)], i, keys, values, std::max<std::int64_t>(0, i - window + 1), i));
      h = rest_of_layer(name, h, output);
    }
    return head(h);
  }

 private:
  const Row& weight(const std::string& name) const { return weights_.at(name); }
  Row token_row(std::int64_t token) const {
    const Row& table = weight("embed.weight");
    return {table.begin() + token * c_.dim, table.begin() + (token + 1) * c_.dim};
  }
  Rows product(const Rows& x, const std::string& name) const {
    const Row& w = weight(name);
    Rows y;
    for (const Row& row : x) {
      Row out(w.size() / row.size(), 0.0);
      for (std::size_t o = 0; o < out.size(); ++o)
        for (std::size_t i = 0; i < row.size(); ++i) out[o] += w[o * row.size() + i] * row[i];
      y.push_back(out);
    }
    return y;
  }
  Rows norm(const Rows& x, const std::string& name) const {
    const Row& gain = weight(name);
    Rows y = x;
    for (Row& row : y) {
      double square = 0;
      for (const double value : row) square += value * value;
      const double root = std::sqrt(square / static_cast<double>(row.size()) + 1e-5);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = row[i] / root * gain[i];
    }
    return y;
  }
  Rows mlp(const Rows& x, const std::string& name) const {
    Rows gate = product(x, name + "gate.weight");
    const Rows up = product(x, name + "up.weight");
    for (std::size_t r = 0; r < gate.size(); ++r)
      for (std::size_t i = 0; i < gate[r].size(); ++i)
        gate[r][i] = gate[r][i] / (1 + std::exp(-gate[r][i])) * up[r][i];
    return product(gate, name + "down.weight");
  }
  static Rows sum(Rows a, const Rows& b) {
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < a[r].size(); ++i) a[r][i] += b[r][i];
    return a;
  }
  Rows evolve(const std::string& name, const Rows& memory) const {
    Rows u = c_.memory_proj ? product(memory, name + "wm.weight") : memory;
    if (c_.memory_ffn)
      u = sum(u, mlp(c_.memory_ffn_prenorm ? norm(u, name + "mlp_norm.weight") : u, name + "mlp."));
    return c_.memory_norm ? norm(u, name + "norm.weight") : u;
  }
  // A query at its position over the rows first .. last, row j at position j.
  Row attend(const Row& query, std::int64_t position, const Rows& keys, const Rows& values,
             std::int64_t first, std::int64_t last) const {
    Row output;
    const std::int64_t e = c_.head_dim;
    for (std::int64_t h = 0; h < c_.heads; ++h) {
      const std::int64_t kv = h * c_.kv_heads / c_.heads * e;
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t j = first; j <= last; ++j) {
        double score = 0;  // the real part of q conj(k) is the product of two turned pairs
        for (std::int64_t i = 0; i < e; i += 2) {
          const double f = std::pow(c_.rope_theta, -static_cast<double>(i) / static_cast<double>(e));
          const std::complex<double> q(query[at(h * e + i)], query[at(h * e + i + 1)]),
              k(keys[at(j)][at(kv + i)], keys[at(j)][at(kv + i + 1)]);
          score += std::real(q * std::polar(1.0, f * static_cast<double>(position)) *
                             std::conj(k * std::polar(1.0, f * static_cast<double>(j))));
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(e))));
        total += weights.back();
      }
      for (std::int64_t i = 0; i < e; ++i) {
        double mixed = 0;
        for (std::int64_t j = first; j <= last; ++j)
          mixed += weights[at(j - first)] / total * values[at(j)][at(kv + i)];
        output.push_back(mixed);
      }
    }
    return output;
  }
  Rows rest_of_layer(const std::string& name, const Rows& h, const Rows& output) const {
    const Rows r = sum(h, product(output, name + "attn.wo.weight"));
    return sum(r, mlp(norm(r, name + "mlp_norm.weight"), name + "mlp."));
  }
  Rows head(const Rows& h) const {
    return product(norm(h, "final_norm.weight"), c_.tied ? "embed.weight" : "head.weight");
  }

  ModelConfig c_;
  std::map<std::string, Row> weights_;
};

Tensor tensor_of(const std::vector<Rows>& rows, const Shape& shape) {
  std::vector<double> values;
  for (const Rows& block : rows)
    for (const Row& row : block) values.insert(values.end(), row.begin(), row.end());
  return Tensor::from(values, shape);
}

std::vector<std::int64_t> sequence(const Tensor& tokens, std::int64_t row) {
  return raw::copy(raw::select(tokens, 0, row)).to_vector<std::int64_t>();
}

// Logits and next memory of both orders, from the given memory or from the initial one.
void check_memory_llama(const ModelConfig& config, std::int64_t time, bool carried) {
  const auto model = blockwise_model(config);
  const ModelConfig& c = model->full_config();
  constexpr std::int64_t kBatch = 2;
  const Tensor tokens = random_ids(kBatch, time, c.vocab, 5), given = random_memory(c, kBatch, 6);
  const Plain plain(*model);
  std::vector<Rows> logits, memories(at(c.layers * kBatch));
  for (std::int64_t b = 0; b < kBatch; ++b) {
    std::vector<Rows> memory;
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const Parameter* init = model->params().find("layers." + std::to_string(layer) + ".memory.init");
      std::vector<double> values(at(c.chunk * c.dim), 0.0);
      if (init != nullptr) values = numbers(init->value);
      if (carried) values = numbers(raw::select(raw::select(given, 0, layer), 0, b));
      Rows rows;
      for (std::int64_t r = 0; r < c.chunk; ++r)
        rows.emplace_back(values.begin() + r * c.dim, values.begin() + (r + 1) * c.dim);
      memory.push_back(rows);
    }
    logits.push_back(plain.memory_llama(sequence(tokens, b), memory));
    for (std::int64_t layer = 0; layer < c.layers; ++layer)
      memories[at(layer * kBatch + b)] = memory[at(layer)];
  }
  for (const bool literal : {false, true}) {
    CAPTURE(literal);
    const Call found = call(*model, tokens, carried ? memory_state(given) : State(), {}, literal);
    check_close("logits", found.logits, tensor_of(logits, {kBatch, time, c.n_out}), kOracleOrder);
    check_close("memory", found.memory, tensor_of(memories, {c.layers, kBatch, c.chunk, c.dim}),
                kOracleOrder);
  }
}

}  // namespace

// What the golden cases do not have: they evolve the memory as the paper does, and begin with a learned one.
TEST_CASE("memory_llama: plain loops agree however the memory evolves and begins") {
  for (int bits = 0; bits < 32; ++bits) {
    CAPTURE(bits);
    ModelConfig config = blockwise_config("memory_llama");
    config.memory_ffn = (bits & 1) == 0;
    config.memory_ffn_prenorm = (bits & 2) == 0;
    config.memory_norm = (bits & 4) == 0;
    config.memory_proj = (bits & 8) != 0;
    config.memory_init = (bits & 16) != 0 ? "zero" : "learned";
    check_memory_llama(config, 8, false);
  }
}

TEST_CASE("memory_llama: plain loops agree at other sizes") {
  ModelConfig config = blockwise_config("memory_llama");
  config.chunk = 1;
  check_memory_llama(config, 3, false);
  config.chunk = 5;
  config.heads = 6;
  config.kv_heads = 3;
  config.rope_theta = 100;
  config.tied = false;
  config.n_out = 7;
  config.mlp_dim = 0;  // 2/3 of 4 dim, rounded up to 32
  check_memory_llama(config, 13, true);
  config.heads = config.kv_heads = 1;
  config.layers = 3;
  check_memory_llama(config, 10, false);
}

TEST_CASE("llama: plain loops agree with and without a window") {
  for (const std::int64_t time : {1, 2, 9})
    for (const std::int64_t window : {1, 2, 5, 9, 100}) {
      CAPTURE(time);
      CAPTURE(window);
      ModelConfig config = blockwise_config("llama_window");
      config.window = window;
      config.tied = window != 5;
      const auto windowed = blockwise_model(config);
      config.model = "llama";
      const auto whole = blockwise_model(config);
      const Tensor tokens = random_ids(1, time, 11, 5);
      const Plain plain(*windowed);
      const Shape shape{1, time, 11};
      check_close("window", call(*windowed, tokens).logits,
                  tensor_of({plain.llama(sequence(tokens, 0), window)}, shape), kOracleOrder);
      check_close("whole", call(*whole, tokens).logits,
                  tensor_of({plain.llama(sequence(tokens, 0), time)}, shape), kOracleOrder);
    }
}
