// The tape gives the modules and what they read; kernels observed on a counting device give their work.
#include "train/app/inspect/model_outline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "autograd/node.h"
#include "autograd/profile.h"
#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "ops/cost/counting.h"
#include "ops/cost/kernel_observer.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "train/app/views/table.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

using detail::Edge, detail::Variable, detail::variable_of;

// The reach is measured in f64, whose kernels are slow: some seconds.
constexpr double kMostMeasured = 2e9;  // multiply-adds of a forward pass

// The operations of products in each module. What kernels did since the last op belongs to the op that has just ended.
class ModuleWork final : public TapeObserver, public KernelObserver {
 public:
  void forward_done(const char*, const Scope* scope) override {
    flops_[scope->path] += open_;
    open_ = 0;
  }
  void backward_done(const Node&) override {}
  void kernel_begins() override {}
  void kernel_done(const char*, const Cost& cost) override { open_ += cost.flops; }

  double of(const std::string& module) const {
    const auto found = flops_.find(module);
    return found == flops_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, double> flops_;
  double open_ = 0;
};

// Every node that y depends on, oldest first.
std::vector<Node*> nodes_behind(const Tensor& y) {
  std::vector<Node*> pending{variable_of(y)->node.get()}, nodes;
  std::unordered_set<const Node*> seen{pending.front()};
  while (!pending.empty()) {
    Node* const node = pending.back();
    pending.pop_back();
    nodes.push_back(node);
    for (const Edge& edge : node->edges())
      if (edge.node != nullptr && seen.insert(edge.node.get()).second) pending.push_back(edge.node.get());
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  return nodes;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// Whether an op runs all steps of a loop over time. The other such ops of ops/recurrence/ need a GPU; without one their
// steps are on the tape.
bool loops_inside(std::string_view op) {
  return op.starts_with("unit_recurrence");
}

// The step of each node in loops: 0, and one more each time that an op works with a parameter on what it made with that
// parameter before. `nodes` is sorted, oldest first.
std::map<const Node*, int> steps_of(const std::vector<Node*>& nodes) {
  const auto site_of = [](const Node& node, const Edge& edge) {
    return std::tuple(edge.node.get(), std::string_view(node.op), node.scope);
  };
  std::map<std::tuple<const Node*, std::string_view, const Scope*>, std::size_t> sites;
  for (const Node* node : nodes)
    for (const Edge& edge : node->edges())
      if (edge.node != nullptr && edge.node->is_leaf()) sites.try_emplace(site_of(*node, edge), sites.size());
  std::map<const Node*, int> steps;
  std::map<const Node*, std::vector<int>> next;  // the step that a site would have behind a node
  for (const Node* node : nodes) {
    if (node->is_leaf()) continue;
    int& step = steps[node];
    std::vector<int>& of_sites = next[node];
    of_sites.resize(sites.size());
    for (const Edge& edge : node->edges())
      if (const auto from = next.find(edge.node.get()); from != next.end()) {
        step = std::max(step, steps[from->first]);
        for (std::size_t i = 0; i < of_sites.size(); ++i)
          of_sites[i] = std::max(of_sites[i], from->second[i]);
      }
    for (const Edge& edge : node->edges())
      if (edge.node != nullptr && edge.node->is_leaf())
        step = std::max(step, of_sites[sites.at(site_of(*node, edge))]);
    for (const Edge& edge : node->edges())
      if (edge.node != nullptr && edge.node->is_leaf()) of_sites[sites.at(site_of(*node, edge))] = step + 1;
  }
  return steps;
}

// The modules that read what they gave in an earlier step of a loop, without another module between: one of their ops
// loops, or works with a parameter on what came of that parameter. `nodes` is sorted, oldest first.
std::set<std::string> modules_that_read_themselves(const std::vector<Node*>& nodes) {
  std::set<std::string> looping;
  std::map<const Node*, std::set<const Node*>>
      behind;  // the parameters from which a node comes, in its module
  for (const Node* node : nodes) {
    if (node->is_leaf()) continue;
    if (loops_inside(node->op)) looping.insert(node->scope->path);
    if (looping.contains(node->scope->path)) continue;
    std::set<const Node*>& parameters = behind[node];
    for (const Edge& edge : node->edges())
      if (const auto from = behind.find(edge.node.get());
          from != behind.end() && edge.node->scope->path == node->scope->path)
        parameters.insert(from->second.begin(), from->second.end());
    for (const Edge& edge : node->edges())
      if (edge.node != nullptr && edge.node->is_leaf() && !parameters.insert(edge.node.get()).second)
        looping.insert(node->scope->path);
  }
  return looping;
}

// Tells the modules that run in the steps of a loop, and of what modules read from behind which is no loop.
void find_loops(std::vector<OutlinedModule>& modules, const std::vector<Node*>& nodes) {
  const std::map<const Node*, int> steps = steps_of(nodes);
  // An op that a module uses twice stands in two steps where a loop lies between. In a loop it stands in each.
  std::map<std::tuple<const Scope*, std::string_view, std::string>, std::set<int>> of_ops;
  int last = 0;
  for (Node* node : nodes) {
    if (node->is_leaf()) continue;
    of_ops[{node->scope, node->op, to_string(node->slot(0).shape)}].insert(steps.at(node));
    last = std::max(last, steps.at(node));
  }
  const std::set<std::string> themselves = modules_that_read_themselves(nodes);
  std::set<std::string> in_steps = themselves;
  for (const auto& [op, found] : of_ops)
    if (found.size() > 2 || (found.size() == 2 && last == 1)) in_steps.insert(std::get<0>(op)->path);
  for (OutlinedModule& module : modules) {
    module.in_steps = in_steps.contains(module.name);
    for (const std::string& from : std::exchange(module.loops, {}))
      (module.in_steps && in_steps.contains(from) ? module.loops : module.parts).push_back(from);
    if (themselves.contains(module.name)) module.loops.push_back(module.name);
  }
}

// Sorts modules so that each stands behind those that it reads, but for loops: modules that read each other stay in the
// order of their first op. What is read from behind becomes a loop.
void put_in_order(std::vector<OutlinedModule>& modules) {
  std::map<std::string, std::set<std::string>> behind;  // what each module reads, through others too
  for (const OutlinedModule& module : modules)
    behind[module.name] = {module.reads.begin(), module.reads.end()};
  for (bool grows = true; grows;) {
    grows = false;
    for (auto& [name, read] : behind) {
      const std::size_t before = read.size();
      for (const std::string& from : std::vector<std::string>(read.begin(), read.end()))
        read.insert(behind[from].begin(), behind[from].end());
      grows = grows || read.size() > before;
    }
  }
  std::vector<OutlinedModule> ordered;
  const auto is_placed = [&](const std::string& name) {
    return std::any_of(ordered.begin(), ordered.end(),
                       [&](const OutlinedModule& m) { return m.name == name; });
  };
  while (!modules.empty()) {
    const auto next = std::find_if(modules.begin(), modules.end(), [&](const OutlinedModule& module) {
      return std::all_of(module.reads.begin(), module.reads.end(), [&](const std::string& from) {
        return is_placed(from) || behind[from].contains(module.name);
      });
    });
    for (const std::string& from : std::exchange(next->reads, {}))
      (is_placed(from) ? next->reads : next->loops).push_back(from);
    ordered.push_back(std::move(*next));
    modules.erase(next);
  }
  modules = std::move(ordered);
}

// The modules on the tape behind y.
std::vector<OutlinedModule> modules_behind(const Tensor& y, const ParamStore& params) {
  std::map<const Node*, std::int64_t> parameters;
  for (const Parameter& parameter : params.parameters())
    if (const Variable* const variable = variable_of(parameter.value))
      parameters[variable->node.get()] = parameter.shape.elements();
  std::vector<OutlinedModule> modules;
  std::map<std::string, std::size_t> places;
  const std::vector<Node*> nodes = nodes_behind(y);
  for (const Node* node : nodes) {
    if (node->is_leaf()) continue;
    const std::string& name = node->scope->path;
    const auto [place, is_new] = places.try_emplace(name, modules.size());
    if (is_new) modules.push_back({.name = name});
    OutlinedModule& module = modules[place->second];
    add_once(module.ops, node->op);
    for (const Edge& edge : node->edges()) {
      if (edge.node == nullptr) continue;
      if (edge.node->is_leaf())  // a parameter counts where it is read first
        module.parameters += std::exchange(parameters[edge.node.get()], 0);
      else if (edge.node->scope->path != name)
        add_once(module.reads, edge.node->scope->path);
    }
  }
  put_in_order(modules);
  find_loops(modules, nodes);
  return modules;
}

// Measures how far back the last token of a call sees, by the gradient of one of its logits with respect to the rows of
// the token table, of which each position reads its own; and whether what the call before read changes that logit. A
// state that forgets a share at every token leaves less of it than f64 shows behind a long call. A shorter call then
// tells whether the recurrent part of the state is read, which each token hands on to the next.
void measure_reach(ModelConfig config, ModelOutline& outline) {
  const std::int64_t tokens = outline.tokens;
  config.vocab = 2 * tokens + 1;
  config.n_out = 0;
  const std::unique_ptr<Model> model = make_model(resolved(config), Dtype::f64);
  model->params().initialize(1);
  const auto call = [&](std::int64_t first_id, const State& state, std::int64_t length) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < length; ++i) ids.push_back(first_id + i);
    ForwardInput input;
    input.tokens = Tensor::from(ids, {1, length});
    input.state = state;
    input.tail = 1;
    return model->forward(input);
  };
  const auto last_logit = [&](const Tensor& logits) {
    return select(select(select(logits, 0, 0), 0, logits.dim(1) - 1), 0, 2 * tokens);
  };
  const Parameter* const embed = model->params().find("embed.weight");
  if (embed == nullptr) return;  // of a program's own model, by another name
  const Tensor table = embed->value;
  const ForwardOutput first = call(0, {}, tokens);
  backward(last_logit(first.logits));
  const std::vector<double> gradient = grad(table).to_vector<double>();
  const auto width = static_cast<std::size_t>(table.dim(1));
  std::int64_t seen_from = tokens;
  double farthest = 0;  // the largest number of the gradient of the farthest token seen
  for (; seen_from > 0; --seen_from) {
    const auto row =
        gradient.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(seen_from - 1) * width);
    const double largest =
        std::abs(*std::max_element(row, row + static_cast<std::ptrdiff_t>(width),
                                   [](double a, double b) { return std::abs(a) < std::abs(b); }));
    if (largest == 0) break;
    farthest = largest;
  }
  outline.reach = tokens - seen_from;
  if (outline.state.empty()) return;
  const NoGrad constant;
  const auto differs_behind = [&](const State& one, const State& other, std::int64_t length) {
    return last_logit(call(0, one, length).logits).item() != last_logit(call(0, other, length).logits).item();
  };
  outline.sees_before = differs_behind(first.state, call(tokens, {}, tokens).state, tokens);
  // A reach that ends before the call does, with a gradient of some size, is that of a window.
  constexpr double kNearUnderflow = 1e-280;
  if (!model->is_recurrent() || (seen_from > 0 && farthest > kNearUnderflow)) return;
  const State forgotten = model->without_recurrence(first.state);
  for (std::int64_t length = tokens / 2; length > 0 && !outline.sees_before; length /= 2) {
    try {
      model->check_length(length, true);
      outline.sees_before = outline.faint = differs_behind(first.state, forgotten, length);
    } catch (const Error&) {
      continue;  // no whole number of blocks
    }
  }
  if (outline.faint) outline.reach = tokens;
}

}  // namespace

ModelOutline outline_model(const ModelConfig& given, std::int64_t tokens) {
  const ModelConfig config = resolved(given);
  const Device device = counting_device();
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32, device);
  ForwardInput input;
  input.tokens = Tensor::empty({1, tokens}, Dtype::i64, device);
  input.tail = 1;
  {
    const NoGrad constant;
    input.state = model->forward(input).state;
  }
  ModelOutline outline;
  outline.name = fmt::format("{}/{}", config.family, config.model);
  outline.tokens = tokens;
  outline.parameters = model->params().count();
  ModuleWork work;
  Tensor logits;
  {
    const ObserveKernels kernels(work, device);
    const ObserveTape tape(work);
    const ForwardOutput output = model->forward(input);
    logits = output.logits;
    for (const auto& [name, tensor] : output.state)
      if (is_floating(tensor.dtype())) outline.state.emplace_back(name, tensor.shape());
  }
  outline.modules = modules_behind(logits, model->params());
  for (OutlinedModule& module : outline.modules) {
    module.multiply_adds = work.of(module.name) / 2 / static_cast<double>(tokens);
    outline.multiply_adds += module.multiply_adds;
  }
  outline.stream_bytes = stream_bytes(config, tokens);
  outline.long_stream_bytes = stream_bytes(config, 10 * tokens);
  if (outline.multiply_adds * static_cast<double>(tokens) <= kMostMeasured) measure_reach(given, outline);
  return outline;
}

std::string to_text(const ModelOutline& outline) {
  const auto shown = [](const std::string& name) { return name.empty() ? std::string("(model)") : name; };
  std::string text = fmt::format("{}, a call of {} {}\n\n", outline.name, grouped(outline.tokens),
                                 plural(outline.tokens, "token"));
  Table modules{{"module", "parameters", "multiply-adds", "reads"}, {}, "lrrl"}, ops, state;
  bool has_loop = false;
  for (const OutlinedModule& module : outline.modules) {
    std::vector<std::string> reads;
    for (const std::string& name : module.reads) reads.push_back(shown(name));
    for (const std::string& name : module.parts) reads.push_back(shown(name));
    for (const std::string& name : module.loops) reads.push_back(shown(name) + "*");
    has_loop = has_loop || !module.loops.empty();
    modules.rows.push_back({shown(module.name), grouped(module.parameters),
                            grouped(std::llround(module.multiply_adds)),
                            !reads.empty()                        ? fmt::format("{}", fmt::join(reads, ", "))
                            : &module == &outline.modules.front() ? "tokens"
                                                                  : "its parameters"});
    ops.rows.push_back({shown(module.name), fmt::format("{}", fmt::join(module.ops, ", "))});
  }
  modules.rows.push_back(
      {"all", grouped(outline.parameters), grouped(std::llround(outline.multiply_adds)), ""});
  text += to_text(modules);
  text += "multiply-adds: of products, for each token\n";
  if (has_loop) text += "*: in a loop, whose steps wait for each other\n";

  text += "\nops\n" + to_text(ops, 2);

  text += "\nstate for the next call";
  if (outline.state.empty())
    text += ": none\n";
  else
    text += '\n';
  for (const auto& [name, shape] : outline.state) state.rows.push_back({name, to_string(shape)});
  text += to_text(state, 2);
  text +=
      outline.stream_bytes == outline.long_stream_bytes
          ? fmt::format("a stream keeps {} bytes, at any length\n", grouped(outline.stream_bytes))
          : fmt::format("a stream keeps {} bytes after {} {}, {} after {}\n", grouped(outline.stream_bytes),
                        grouped(outline.tokens), plural(outline.tokens, "token"),
                        grouped(outline.long_stream_bytes), grouped(10 * outline.tokens));
  if (!outline.reach)
    text +=
        "reach: not measured (for smaller sizes it is, where the table of tokens is named embed.weight)\n";
  else
    text += fmt::format("reach: the last token of a call sees {} of its {} {}, and {} before it{}\n",
                        grouped(*outline.reach), grouped(outline.tokens), plural(outline.tokens, "token"),
                        outline.sees_before ? "through the state those" : "nothing",
                        outline.faint ? ", the farthest by less than f64 shows" : "");
  return text;
}

}  // namespace eddy::app
