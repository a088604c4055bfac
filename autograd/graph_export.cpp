// Writing the tape as Graphviz text. The walk is iterative: a graph over many time steps is deeper than the
// stack.
#include "autograd/graph_export.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/base/format.h"

namespace eddy {
namespace {

// As the inside of a quoted DOT string. Backslashes would start Graphviz' own escapes.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    parts.push_back(path.substr(start, dot - start));
    start = dot + 1;
  }
  return parts;
}

// Every node that y depends on, oldest first.
std::vector<Node*> collect(Node* last) {
  std::vector<Node*> pending{last}, nodes;
  std::unordered_map<const Node*, bool> seen{{last, true}};
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    nodes.push_back(node);
    for (const detail::Edge& edge : node->edges())
      if (edge.node != nullptr && seen.emplace(edge.node.get(), true).second)
        pending.push_back(edge.node.get());
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  return nodes;
}

std::string describe_output(Node& node, int output) {
  const detail::GradSlot& slot = node.slot(output);
  const std::string text = fmt::format("{} {}", to_string(slot.shape), dtype_name(slot.dtype));
  return node.outputs() > 1 ? fmt::format("output {}: {}", output, text) : text;
}

class DotWriter {
 public:
  DotWriter(const std::vector<Node*>& nodes, const std::map<std::string, Tensor>& leaf_names)
      : nodes_(nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i) ids_[nodes[i]] = i + 1;
    for (const auto& [name, leaf] : leaf_names) {
      const detail::Variable* variable = leaf.defined() ? detail::variable_of(leaf) : nullptr;
      if (variable == nullptr || !variable->node->is_leaf())
        fail<ValueError>("graph_to_dot: '{}' names a tensor that is no leaf (mark it by require_grad)", name);
      names_[variable->node.get()] = name;
    }
  }

  std::string write(const detail::Variable& y) {
    text_ =
        "digraph tape {\n  rankdir=TB;\n  node [fontname=\"Helvetica\"];\n  edge [fontname=\"Helvetica\"];\n";
    write_nodes();
    text_ += fmt::format("  result [shape=plaintext, label=\"result\\n{}\"];\n",
                         escaped(describe_output(*y.node, y.output)));
    for (Node* node : nodes_)
      for (const detail::Edge& edge : node->edges())
        if (edge.node != nullptr) write_edge(*edge.node, edge.output, fmt::format("n{}", ids_[node]));
    write_edge(*y.node, y.output, "result");
    return text_ + "}\n";
  }

 private:
  // Sorted by module path, nodes of one module stand together and inner modules follow the outer one, so
  // frames can be opened and closed by comparing each path with the one before.
  void write_nodes() {
    std::map<std::vector<std::string>, std::vector<Node*>> modules;
    for (Node* node : nodes_) modules[split_path(node->scope->path)].push_back(node);
    std::vector<std::string> open;
    int frames = 0;
    for (const auto& [path, members] : modules) {
      const auto differ = std::mismatch(open.begin(), open.end(), path.begin(), path.end()).first;
      close_frames(open, static_cast<std::size_t>(differ - open.begin()));
      while (open.size() < path.size()) {
        indent(open.size());
        text_ += fmt::format("subgraph cluster_{} {{\n", ++frames);
        open.push_back(path[open.size()]);
        indent(open.size());
        text_ += fmt::format("label=\"{}\";\n", escaped(open.back()));
      }
      for (Node* node : members) write_node(*node, open.size());
    }
    close_frames(open, 0);
  }

  void close_frames(std::vector<std::string>& open, std::size_t left) {
    while (open.size() > left) {
      open.pop_back();
      indent(open.size());
      text_ += "}\n";
    }
  }

  void indent(std::size_t frames) { text_.append(2 * (frames + 1), ' '); }

  void write_node(Node& node, std::size_t frames) {
    indent(frames);
    if (node.is_leaf()) {
      const auto name = names_.find(&node);
      text_ += fmt::format("n{} [shape=box, label=\"{}\\n{}\"];\n", ids_[&node],
                           escaped(name != names_.end() ? name->second : node.op),
                           escaped(describe_output(node, 0)));
      return;
    }
    std::int64_t bytes = 0;
    for (const detail::SavedTensor& saved : node.saved_tensors())
      if (saved.peek().defined()) bytes += saved.peek().bytes();
    text_ += fmt::format("n{} [shape=ellipse, label=\"{}\\nsaved {} bytes{}\"];\n", ids_[&node],
                         escaped(node.op), bytes, node.freed ? "\\nfreed by backward" : "");
  }

  void write_edge(Node& from, int output, const std::string& to) {
    text_ +=
        fmt::format("  n{} -> {} [label=\"{}\"];\n", ids_[&from], to, escaped(describe_output(from, output)));
  }

  const std::vector<Node*>& nodes_;
  std::unordered_map<const Node*, std::size_t> ids_;
  std::unordered_map<const Node*, std::string> names_;
  std::string text_;
};

}  // namespace

std::string graph_to_dot(const Tensor& y, const std::map<std::string, Tensor>& leaf_names) {
  const detail::Variable* variable = y.defined() ? detail::variable_of(y) : nullptr;
  if (variable == nullptr)
    fail<GraphError>(
        "graph_to_dot: the tensor depends on nothing that requires a gradient, so there is no graph");
  const std::vector<Node*> nodes = collect(variable->node.get());
  return DotWriter(nodes, leaf_names).write(*variable);
}

}  // namespace eddy
