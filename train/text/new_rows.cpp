// The old part of each parameter is a corner of the new one.
#include "train/text/new_rows.h"

#include <vector>

#include "models/weights.h"
#include "tensor/base/format.h"
#include "train/words/human_text.h"

namespace eddy::training {

std::map<std::string, Tensor> with_new_rows(const std::map<std::string, Tensor>& trained,
                                            const ParamStore& params) {
  std::map<std::string, Tensor> all = trained;
  for (const auto& [name, initial] : parameter_map(params)) {
    const auto old = all.find(name);
    if (old == all.end() || old->second.shape() == initial.shape()) continue;
    const Shape &less = old->second.shape(), &more = initial.shape();
    if (less.rank() != more.rank()) continue;  // load_parameters says what is wrong
    Tensor whole = raw::copy(initial), corner = whole;
    bool fits = true;
    for (int axis = 0; axis < more.rank(); ++axis) {
      fits = fits && less[axis] <= more[axis];
      if (fits) corner = raw::narrow(corner, axis, 0, less[axis]);
    }
    if (!fits) continue;
    raw::copy_into(corner, raw::to_device(raw::cast(old->second, whole.dtype()), whole.device()));
    old->second = whole;
  }
  return all;
}

std::string take_new_tokens(ModelConfig& model, const Tokenizer& before, const Tokenizer& now,
                            const std::string& run) {
  const std::int64_t had = before.vocab_size(), has = now.vocab_size();
  if (has == had) return "";
  for (std::int64_t* const size : {&model.vocab, &model.n_out})
    if (*size == had) *size = 0;  // the data give it anew
  std::vector<std::int32_t> ids;
  std::string text;
  for (std::int64_t id = had; id < has; ++id) text += now.decode_one(static_cast<std::int32_t>(id));
  return fmt::format(
      "the text has {} {} that {} does not know: {}; each gets a new row in the embedding and in the output, which "
      "begins as in a new model ({} tokens, {} before)",
      has - had, plural(has - had, "character"), run, list_characters(before.missing_in(text)), has, had);
}

}  // namespace eddy::training
