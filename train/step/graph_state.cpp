// The kinds of batches as text, and memory for the states of graphs.
#include "train/step/graph_state.h"

#include <algorithm>
#include <utility>

#include "tensor/base/format.h"

namespace eddy {
namespace {

// Builds the text of a kind, which is only compared.
class KindText {
 public:
  void add(std::int64_t number) { text_ += std::to_string(number) + ' '; }
  void add(const std::string& name) { text_ += name + ' '; }
  // Shape, layout and dtype; on the host also the contents, since models branch on them.
  void add(const Tensor& x) {
    if (!x.defined()) return add("none");
    add(static_cast<std::int64_t>(x.dtype()));
    for (int i = 0; i < x.rank(); ++i) {
      add(x.dim(i));
      add(x.strides()[i]);
    }
    add(";");
    if (!(x.device() == kCpu)) return;
    const Tensor packed = raw::contiguous(x);
    text_.append(static_cast<const char*>(packed.raw_data()), static_cast<std::size_t>(packed.bytes()));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// 0 when no row begins anew, 2 when all do (a cold start), 1 when some do: which ones is data, not kind.
int rows_that_begin(const Tensor& start) {
  if (!start.defined()) return 0;
  const std::int64_t* const flags = start.data<std::int64_t>();
  return std::all_of(flags, flags + start.elements(), [](std::int64_t flag) { return flag != 0; }) ? 2 : 1;
}

// A tensor of the same layout with new, uninitialised memory.
Tensor place_like(const Tensor& x) {
  std::int64_t span = 1;
  for (int i = 0; i < x.rank(); ++i) span += (x.dim(i) - 1) * x.strides()[i];
  const Tensor storage = Tensor::empty({x.elements() == 0 ? 0 : span}, x.dtype(), x.device());
  return Tensor::over(storage.buffer(), 0, x.shape(), x.strides(), x.dtype());
}

}  // namespace

std::string capture_key(const std::vector<Batch>& batches, const State& state) {
  KindText text;
  for (const Batch& batch : batches) {
    for (const Tensor* tensor : {&batch.tokens, &batch.targets}) {
      text.add(static_cast<std::int64_t>(tensor->dtype()));
      text.add(to_string(tensor->shape()));
    }
    text.add(batch.block);
    text.add(batch.tail);
    text.add(batch.scored > 0 ? 1 : 0);
    text.add(rows_that_begin(batch.start));
  }
  for (const auto& [name, tensor] : state) {
    text.add(name);
    text.add(tensor);
  }
  return text.take();
}

State state_buffers_like(const State& state) {
  State places;
  for (const auto& [name, tensor] : state)
    places.set(name, tensor.device() == kCpu ? raw::copy(tensor) : place_like(tensor));
  return places;
}

void copy_state_into(const State& places, const State& state) {
  for (const auto& [name, place] : places) {
    const Tensor& from = state.get(name);
    if (!(place.device() == kCpu) && from.raw_data() != place.raw_data()) raw::copy_into(place, from);
  }
}

void update_bf16_copy(const ParamStore& params) {
  if (params.activations() == Dtype::bf16) static_cast<void>(raw::to_bf16(params.values()));
}

}  // namespace eddy
