// Starting a model for a larger vocabulary from the weights of a smaller one.
#pragma once

#include <map>
#include <string>

#include "models/eddy/config.h"
#include "models/params.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

// The parameters of a model whose vocabulary has more tokens, the first of which are those of `trained`: rows (and
// columns) of the tokens that both know are those of `trained`, the others the initial values that `params` holds.
// Parameters of equal shapes are those of `trained`.
std::map<std::string, Tensor> with_new_rows(const std::map<std::string, Tensor>& trained,
                                            const ParamStore& params);

// Sets the sizes of `model`, which are those of a run with the vocabulary `before`, to those for `now`. Returns what is
// new, for people: "the text has 2 characters that runs/a does not know: ..."; "" when nothing is.
std::string take_new_tokens(ModelConfig& model, const Tokenizer& before, const Tokenizer& now,
                            const std::string& run);

}  // namespace eddy::training
