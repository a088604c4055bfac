// A picture of the tape for study: Graphviz DOT text. `dot -Tsvg graph.dot > graph.svg` draws it.
#pragma once

#include <map>
#include <string>

#include "autograd/tape.h"

namespace eddy {

// The graph behind y as DOT text: leaves are boxes with their shape, operations ellipses with the bytes they
// keep for the backward pass, edges carry the shape of what flows forward along them, and modules are nested
// frames. Nodes are numbered in creation order, so equal programs give equal texts. `leaf_names` names
// leaves, e.g. parameters by path.
// errors: GraphError when y is untracked; ValueError when a named tensor is no leaf.
std::string graph_to_dot(const Tensor& y, const std::map<std::string, Tensor>& leaf_names = {});

}  // namespace eddy
