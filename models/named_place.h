// Where an attention's queries and keys stand among the tokens of a call, for those who look inside a run.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/named_values.h"

namespace eddy {

// Names "place" in the current scope, beside the "probabilities" or the "state" of the same call: the tokens at which
// the first query (or row) and the first key stand, f64 [2]; negative ones stand before the call. A layer whose queries
// are the tokens of the call in order, once, with keys that end with the last query, need not name it.
inline void name_place(std::int64_t first_query, std::int64_t first_key) {
  name_value("place", [&] {
    return Tensor::from(std::vector<double>{static_cast<double>(first_query), static_cast<double>(first_key)},
                        {2});
  });
}

}  // namespace eddy
