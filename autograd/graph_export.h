// The tape as a Graphviz graph, to look at. `dot -Tsvg graph.dot > graph.svg` draws it.
#pragma once

#include <map>
#include <string>

#include "autograd/tape.h"

namespace eddy {

// Returns the graph behind y as DOT text. Leaves are boxes with their shape, operations are ellipses with the
// bytes saved for backward, edges are labelled with the shape of the tensor that flows forward, and modules
// are nested frames. Nodes are numbered in creation order, so equal programs give equal texts. `leaf_names`
// gives names to leaves, for example to parameters.
// errors: GraphError when y is untracked; ValueError when a named tensor is no leaf.
std::string graph_to_dot(const Tensor& y, const std::map<std::string, Tensor>& leaf_names = {});

}  // namespace eddy
