// The oracle of the staircase family: the definitions on plain vectors of doubles, one query and one key at a
// time, over one endless sequence without segments. It shares no code with the models.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/staircase/staircase_case.h"

namespace eddy::test {

using Vec = std::vector<double>;

class StaircaseOracle {
 public:
  explicit StaircaseOracle(const Model& model) : c(model.full_config()) {
    for (const Parameter& parameter : model.params().parameters())
      values_[parameter.name] = numbers(parameter.value);
  }

  static bool knows(const std::string& model) {
    for (const char* known :
         {"staircase", "cached_staircase", "feedback", "transformer_xl", "ladder", "universal"})
      if (model == known) return true;
    return false;
  }

  // Logits of one row of tokens from the cold start, [time][n_out].
  std::vector<Vec> logits(const std::vector<std::int64_t>& tokens) const {
    std::vector<Vec> x;
    for (const std::int64_t id : tokens) {
      const Vec& table = at("embed.weight");
      x.emplace_back(table.begin() + id * c.dim, table.begin() + (id + 1) * c.dim);
    }
    std::vector<Vec> h;
    if (c.model == "staircase" || c.model == "cached_staircase")
      h = staircase(x);
    else if (c.model == "feedback")
      h = feedback(x);
    else
      h = xl(x);
    for (Vec& y : h) {
      if (c.prenorm) y = norm(y, "final_norm");
      y = plus(times(y, "head.weight", c.n_out), at("head.bias"));
    }
    return h;
  }

  // Queries and keys (zero vectors before the first token left out) of each row of the last staircase.
  mutable std::vector<std::pair<std::int64_t, std::int64_t>> row_sizes;
  // Keys that the last query of the oldest chunk saw, row by row.
  mutable std::vector<std::int64_t> seen_by_oldest;

 private:
  struct Seen {
    const Vec* x;
    std::int64_t column;
  };

  const Vec& at(const std::string& name) const { return values_.at(name); }

  static Vec plus(Vec a, const Vec& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  Vec times(const Vec& x, const std::string& name, std::int64_t rows) const {
    const Vec& w = at(name);
    Vec y(static_cast<std::size_t>(rows), 0.0);
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    return y;
  }
  Vec norm(const Vec& x, const std::string& name) const {
    const auto n = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / n;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    Vec y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(variance + c.norm_eps) * at(name + ".weight")[i] +
                  at(name + ".bias")[i]);
    return y;
  }

  Vec layer(std::int64_t l, const Vec& x, const std::vector<Seen>& seen) const {
    const std::string path = "layers." + std::to_string(l), kv = c.shared_kv ? "layers.0" : path;
    const std::int64_t inner = c.heads * c.head_dim;
    const auto in = [&](const Vec& v) { return c.prenorm ? norm(v, kv + ".attn_norm") : v; };
    const Vec q = times(in(x), path + ".attn.wq.weight", inner);
    std::vector<Vec> keys, values;
    for (const Seen& one : seen) {
      keys.push_back(times(in(*one.x), kv + ".attn.wk.weight", inner));
      values.push_back(times(in(*one.x), kv + ".attn.wv.weight", inner));
    }
    Vec mixed(static_cast<std::size_t>(inner), 0.0);
    for (std::int64_t a = 0; a < c.heads; ++a) {
      Vec weights;
      double sum = 0;
      for (std::size_t j = 0; j < seen.size(); ++j) {
        double score = 0;
        for (std::int64_t i = 0; i < c.head_dim; ++i) {
          const auto e = static_cast<std::size_t>(a * c.head_dim + i);
          score +=
              q[e] * (keys[j][e] + at("pos.key_pe")[static_cast<std::size_t>(i * c.span + seen[j].column)]);
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(c.head_dim))));
        sum += weights.back();
      }
      for (std::size_t j = 0; j < seen.size(); ++j)
        for (std::int64_t i = 0; i < c.head_dim; ++i) {
          const auto e = static_cast<std::size_t>(a * c.head_dim + i);
          mixed[e] += weights[j] / sum * values[j][e];
        }
    }
    Vec h = plus(x, times(mixed, path + ".attn.wo.weight", c.dim));
    if (!c.prenorm) h = norm(h, path + ".attn_norm");
    Vec u = plus(times(c.prenorm ? norm(h, path + ".mlp_norm") : h, path + ".mlp.up.weight", c.mlp_dim),
                 at(path + ".mlp.up.bias"));
    for (double& v : u) v = std::max(v, 0.0);
    Vec y = plus(h, plus(times(u, path + ".mlp.down.weight", c.dim), at(path + ".mlp.down.bias")));
    return c.prenorm ? y : norm(y, path + ".mlp_norm");
  }

  // Rows s = 0 ..: chunks s-M+1 .. s move on by one pass, those before them within N chunks are frozen.
  std::vector<Vec> staircase(std::vector<Vec> h) const {
    const std::int64_t chunks = static_cast<std::int64_t>(h.size()) / c.chunk;
    const std::int64_t passes = c.model == "staircase" ? c.steps : c.cache_after;
    const Vec zero(static_cast<std::size_t>(c.dim), 0.0);
    for (std::int64_t s = 0; s < chunks + passes - 1; ++s) {
      const std::int64_t oldest = std::max<std::int64_t>(0, s - passes + 1), newest = std::min(s, chunks - 1);
      const std::int64_t begin = oldest * c.chunk, end = (newest + 1) * c.chunk;
      const std::int64_t window = (s - c.steps + 1) * c.chunk;
      row_sizes.emplace_back(end - begin, end - std::max<std::int64_t>(0, window));
      for (std::int64_t l = 0; l < c.layers; ++l) {
        std::vector<Vec> next = h;
        for (std::int64_t t = begin; t < end; ++t) {
          std::vector<Seen> seen;
          for (std::int64_t k = window; k <= t; ++k) {
            if (k < 0 && c.cold_start == "empty") continue;
            seen.push_back({k < 0 ? &zero : &h[static_cast<std::size_t>(k)], c.span - 1 - (t - k)});
          }
          if (t == begin + c.chunk - 1 && l == 0)
            seen_by_oldest.push_back(static_cast<std::int64_t>(seen.size()));
          next[static_cast<std::size_t>(t)] = layer(l, h[static_cast<std::size_t>(t)], seen);
        }
        h = next;
      }
    }
    return h;
  }

  std::vector<Vec> xl(std::vector<Vec> h) const {
    const Vec zero(static_cast<std::size_t>(c.dim), 0.0);
    const std::int64_t time = static_cast<std::int64_t>(h.size());
    const std::int64_t repeats = c.model == "transformer_xl" ? 1 : c.repeats;
    for (std::int64_t r = 0; r < repeats; ++r)
      for (std::int64_t l = 0; l < c.layers; ++l) {
        std::vector<Vec> next;
        for (std::int64_t t = 0; t < time; ++t) {
          std::vector<Seen> seen;
          for (std::int64_t d = c.span; d >= 1; --d) {
            if (t - d < 0 && c.cold_start == "empty") continue;
            seen.push_back({t - d < 0 ? &zero : &h[static_cast<std::size_t>(t - d)], c.span - d});
          }
          next.push_back(layer(l, h[static_cast<std::size_t>(t)], seen));
        }
        h = next;
      }
    return h;
  }

  std::vector<Vec> feedback(const std::vector<Vec>& x) const {
    const Vec zero(static_cast<std::size_t>(c.dim), 0.0);
    std::vector<Vec> memory, outputs;
    Vec weights;
    double sum = 0;
    const bool last_layer = c.feedback_memory == "last";
    const Vec logits = last_layer ? Vec(static_cast<std::size_t>(c.layers + 1)) : at("feedback.layer_logits");
    for (const double logit : logits) sum += std::exp(logit);
    for (const double logit : logits) weights.push_back(std::exp(logit) / sum);
    for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()); ++t) {
      Vec h = x[static_cast<std::size_t>(t)], mixed(h.size(), 0.0);
      for (std::size_t i = 0; i < h.size(); ++i) mixed[i] += weights[0] * h[i];
      for (std::int64_t l = 0; l < c.layers; ++l) {
        // A token that sees itself does so at the table's last column, and one step less of the past.
        const std::int64_t last = c.span - (c.feedback_self ? 1 : 0);
        std::vector<Seen> seen;
        for (std::int64_t d = last; d >= 1; --d) {
          if (t - d < 0 && c.cold_start == "empty") continue;
          seen.push_back({t - d < 0 ? &zero : &memory[static_cast<std::size_t>(t - d)], last - d});
        }
        if (c.feedback_self) seen.push_back({&h, c.span - 1});
        h = layer(l, h, seen);
        for (std::size_t i = 0; i < h.size(); ++i)
          mixed[i] += weights[static_cast<std::size_t>(l + 1)] * h[i];
      }
      outputs.push_back(h);
      memory.push_back(last_layer ? h : mixed);
    }
    return outputs;
  }

  ModelConfig c;
  std::map<std::string, Vec> values_;
};

}  // namespace eddy::test
