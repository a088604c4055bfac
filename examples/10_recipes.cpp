// Example 10: what is written first after the first program. docs/library.md shows these lines and says what they are
// in libtorch and MLX; here they run, on a text that Eddy makes, and each checks itself.
#include <eddy/eddy.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "train/loops/user_loop.h"
#include "train/tasks/task.h"
#include "train/text/stories/stories.h"
#include "train/text/tokenizer.h"

using namespace eddy;
using namespace eddy::training;

namespace {

int wrong = 0;

void check(const char* recipe, bool holds) {
  std::printf("%-24s %s\n", recipe, holds ? "as expected" : "WRONG");
  if (!holds) ++wrong;
}

// ---- a list of modules

struct Body {
  Body(const ParamScope& scope, std::int64_t vocab, std::int64_t width, std::int64_t count)
      : embed(scope.scope("embed"), vocab, width, 0.5) {
    for (std::int64_t i = 0; i < count; ++i)
      layers.emplace_back(scope.scope("layers").scope(i), width, width, 0.1, /*with_bias=*/true);
  }
  Tensor operator()(const Tensor& tokens) const {
    Tensor x = embed(tokens);
    for (const Linear& layer : layers) x = x + tanh(layer(x));
    return x;
  }

  Embedding embed;
  std::vector<Linear> layers;  // layers.0.weight, layers.0.bias, layers.1.weight, ...
};

struct Head {
  Head(const ParamScope& scope, std::int64_t width, std::int64_t vocab)
      : out(scope.scope("out"), width, vocab, 0.1, true) {}
  Tensor operator()(const Tensor& x) const { return out(x); }

  Linear out;
};

struct Net {
  Net(const ParamScope& scope, std::int64_t vocab)
      : body(scope.scope("body"), vocab, 16, 2), head(scope.scope("head"), 16, vocab) {}
  Tensor operator()(const Tensor& tokens) const { return head(body(tokens)); }

  Body body;
  Head head;
};

// ---- an op with a gradient of its own: x tanh(softplus(x))

Tensor mish(const Tensor& x) {
  const Tensor plain = detach(x);  // the op goes on the tape, not its parts
  return record("mish", {x}, plain * tanh(softplus(plain)), {x}, [](VjpContext& v) {
    const Tensor& z = v.saved(0);  // nothing is recorded here
    const Tensor t = tanh(softplus(z));
    v.sink.accumulate(0, v.dy() * (t + z * sigmoid(z) * (1.0 - t * t)));  // to input 0
  });
}

// ---- the text as batches

std::unique_ptr<Task> batches_of(const std::string& path, std::int64_t& vocab) {
  TaskArguments arguments;
  arguments.config.data.path = path;         // a file or a folder; other keys as in a configuration file
  arguments.config.data.tokenizer = "byte";  // the same numbers for every text
  arguments.config.train.batch = 8;
  arguments.config.train.sequence = 32;
  std::unique_ptr<Task> text = make_task(std::move(arguments));
  ModelConfig sizes;
  text->set_model_sizes(sizes);
  vocab = sizes.vocab;
  return text;  // text->next(step, 0) depends on (seed, step) alone, but for data.order = "stream"
}

struct Recipes {
  Task &text, &validation;
  std::int64_t vocab;
  std::filesystem::path folder;

  double loss_of_validation(const Module<Net>& net) const {
    const NoGrad no_grad;
    const Batch held_out = validation.next(0, 0);  // of another text
    return cross_entropy(net(held_out.tokens), held_out.targets).item();
  }

  void schedules() const {
    auto net = make_module<Net>(1, vocab);
    Adam adam(net.params(), {.learning_rate = 1e-2});
    const ScheduleOptions schedule{.schedule = "cosine", .min_learning_rate = 1e-4, .steps = 40, .warmup = 5};
    const double before = loss_of_validation(net);
    for (std::int64_t step = 0; step < schedule.steps; ++step) {
      const Batch batch = text.next(step, 0);
      adam.zero_gradients();
      backward(cross_entropy(net(batch.tokens), batch.targets));
      adam.step(learning_rate_at(schedule, 1e-2, step));
    }
    check("schedule, data loader", loss_of_validation(net) < before - 0.3);
  }

  void groups() const {
    auto net = make_module<Net>(1, vocab);
    const auto in_head = [](const Parameter& p) { return p.name.starts_with("head."); };
    ParameterMask group = parameters_where(net.params(), in_head);
    Adam fast(net.params(), {.learning_rate = 1e-2}, group);
    group.flip();  // the others
    Adam slow(net.params(), {.learning_rate = 1e-4, .weight_decay = 0}, group);
    const Batch batch = text.next(0, 0);
    fast.zero_gradients();  // those of all groups
    backward(cross_entropy(net(batch.tokens), batch.targets));
    const double norm = fast.step();
    check("parameter groups", slow.step() == norm && slow.save().contains("m.body.embed.weight") &&
                                  !slow.save().contains("m.head.out.weight"));
  }

  void accumulation() const {
    auto net = make_module<Net>(1, vocab);
    Adam adam(net.params(), {.clip = 0.5});
    adam.zero_gradients();
    for (std::int64_t part = 0; part < 4; ++part) {
      const Batch batch = text.next(0, part);
      backward(cross_entropy(net(batch.tokens), batch.targets) / 4.0);  // gradients add up
    }
    const double norm = adam.step();  // before clipping; where it is not finite, nothing changed
    check("accumulation, clipping", std::isfinite(norm) && adam.steps() == 1);
  }

  static void own_op() {
    const auto op = [](const std::vector<Tensor>& inputs) { return std::vector{mish(inputs[0])}; };
    const GradcheckResult result = gradcheck(op, {randn({3, 5}, Dtype::f64)});
    check("an op of one's own", result.ok);  // result.describe() names the worst element
  }

  static void arrays() {
    const Tensor inputs = randn({10, 3}), labels = arange(10, Dtype::i64);
    std::vector<bool> seen(10);
    std::int64_t batches = 0;
    const std::int64_t count = inputs.dim(0), size = 4;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      const Tensor order = randperm(count);
      for (std::int64_t at = 0; at < count; at += size) {
        const Tensor picks = narrow(order, 0, at, std::min(size, count - at));
        const Tensor x = index_select(inputs, 0, picks), y = index_select(labels, 0, picks);
        for (const std::int64_t label : y.to_vector<std::int64_t>())
          seen[static_cast<std::size_t>(label)] = true;
        batches += x.dim(0) == y.dim(0);
      }
    }
    check("batches of arrays", batches == 6 && seen == std::vector<bool>(10, true));
  }

  static void rows_of_a_text() {
    const std::string all = generate_stories(3, 5000);
    const std::int64_t time = 16;
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("char", all);  // vocab_size() tokens
    const Tensor ids = tensor(tokenizer->encode(all));
    const std::int64_t rows = (ids.elements() - 1) / time;
    const Tensor x = narrow(ids, 0, 0, rows * time).reshape({rows, time});
    const Tensor y = narrow(ids, 0, 1, rows * time).reshape({rows, time});  // the token after each
    check("rows of a text", x[1][0].item_int() == y[0][-1].item_int());
  }

  void sampling() const {
    auto net = make_module<Net>(1, vocab);
    const double temperature = 0.8;
    const std::int64_t k = 3;
    const NoGrad no_graph;
    Tensor tokens = zeros({2, 1}, Dtype::i64);
    const Tensor best = topk(net(tokens).select(1, -1), k).indices;
    const Tensor logits = net(tokens).select(1, -1) / temperature;  // of the last token: [batch, vocab]
    const Tensor least = topk(logits, k).values.narrow(1, k - 1, 1);
    const Tensor next = multinomial(softmax(where(logits < least, -INFINITY, logits)), 1);
    tokens = concat({tokens, next}, 1);  // both i64
    const std::vector<std::int64_t> drawn = next.to_vector<std::int64_t>();
    bool among = tokens.dim(1) == 2;
    for (std::size_t row = 0; row < drawn.size(); ++row) {
      const std::vector<std::int64_t> allowed =
          best[static_cast<std::int64_t>(row)].to_vector<std::int64_t>();
      among = among && std::find(allowed.begin(), allowed.end(), drawn[row]) != allowed.end();
    }
    check("sampling", among);
  }

  static void dropping_out() {
    const Tensor x = ones({1000});
    const auto module = [](const Tensor& in) { return dropout(in, 0.5); };
    const auto at = [&](std::int64_t step) {
      const DropoutScope dropping({.training = true, .seed = 1, .step = step});
      return module(x).to_vector<float>();
    };
    const DropoutScope evaluating(DropoutContext{});  // x as it is
    check("dropout", at(0) == at(0) && at(0) != at(1) && module(x).same(x));
  }

  void freezing() const {
    auto body = make_module<Body>(1, vocab, 16, 2);
    auto head = make_module<Head>(2, 16, vocab);
    Adam adam(head.params(), {.learning_rate = 1e-2});  // of what learns
    const Batch batch = text.next(0, 0);
    Tensor features;
    {
      const NoGrad frozen;  // no graph is kept either; detach(x) cuts one at a place
      features = body(batch.tokens);
    }
    backward(cross_entropy(head(features), batch.targets));
    adam.step();
    check("freezing", !grad(body->embed.weight).defined() && grad(head->out.weight).defined());
  }

  void precision() const {
    auto net = make_module<Net>({.seed = 1, .matmul_precision = MatmulPrecision::bf16}, vocab);
    const Batch batch = text.next(0, 0);
    const Tensor loss = cross_entropy(net(batch.tokens), batch.targets);
    backward(
        loss);  // products round their factors where the processor gains by it; sums and weights stay f32
    check("mixed precision", net->head.out.weight.dtype() == Dtype::f32 && std::isfinite(loss.item()));
  }

  void best() const {
    auto net = make_module<Net>(1, vocab);
    Adam adam(net.params(), {.learning_rate = 3e-2});
    const std::string file = (folder / "best.safetensors").string();
    double best = INFINITY;
    int since = 0;
    for (std::int64_t step = 0; step < 2000 && since < 3; ++step) {
      const Batch batch = text.next(step, 0);
      adam.zero_gradients();
      backward(cross_entropy(net(batch.tokens), batch.targets));
      adam.step();
      if (step % 20 != 0) continue;
      const double loss = loss_of_validation(net);
      ++since;
      if (loss < best - 1e-3) {
        best = loss;
        since = 0;
        net.save(file);  // whole or absent, however the program ends
      }
    }
    net.load(file);
    check("best, early stopping", since == 3 && loss_of_validation(net) == best);
  }

  // Trains from where the folder stands to `last`, as a process that may be killed at any moment.
  std::vector<float> trained_to(std::int64_t last, const std::filesystem::path& where) const {
    auto net = make_module<Net>(1, vocab);
    Adam adam(net.params());
    std::int64_t step = 0;
    if (const auto saved = load_training(where, net, adam)) step = saved->step;
    MetricsWriter metrics = continue_metrics(where, step, {.name = "recipe", .model = "net"});
    for (; step < last; ++step) {
      const Batch batch = text.next(step, 0);
      const Tensor loss = cross_entropy(net(batch.tokens), batch.targets);
      adam.zero_gradients();
      backward(loss);
      adam.step();
      metrics.write(StepRecord{.step = step + 1, .loss = loss.item()});
      if ((step + 1) % 10 == 0) save_training(where, net, adam, step + 1);
    }
    return net.params().values().to_vector<float>();
  }

  void resuming() const {
    const std::vector<float> whole = trained_to(30, folder / "whole");
    static_cast<void>(trained_to(15, folder / "parts"));  // ends behind a checkpoint
    check("resuming", trained_to(30, folder / "parts") == whole);
  }

  void looking_inside() const {
    auto net = make_module<Net>(1, vocab);
    const NamedValues seen = capture_values({"body.*"}, [&] {
      const ScopeGuard scope("body");
      Tensor x = net->body(text.next(0, 0).tokens);
      name_value("features", x);
    });
    check("looking inside", seen.at("body.features")[0].dim(-1) == 16);
  }
};

}  // namespace

int main() try {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("recipes-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "stories.txt") << generate_stories(1, 60000);
  std::ofstream(folder / "held_out.txt") << generate_stories(2, 20000);
  std::int64_t vocab = 0, same_vocab = 0;
  const std::unique_ptr<Task> text = batches_of((folder / "stories.txt").string(), vocab),
                              held_out = batches_of((folder / "held_out.txt").string(), same_vocab);
  const Recipes recipes{*text, *held_out, vocab, folder};
  recipes.schedules();
  recipes.groups();
  recipes.accumulation();
  Recipes::own_op();
  Recipes::arrays();
  Recipes::rows_of_a_text();
  Recipes::dropping_out();
  recipes.freezing();
  recipes.precision();
  recipes.best();
  recipes.sampling();
  recipes.resuming();
  recipes.looking_inside();
  std::filesystem::remove_all(folder);
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
