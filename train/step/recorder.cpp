// The signatures of work; capturing work, and replaying it.
#include "train/step/recorder.h"

#include <algorithm>
#include <utility>

#include "autograd/tape.h"
#include "ops/core/capture.h"
#include "tensor/base/format.h"

namespace eddy::training {
namespace {

bool on_host(const Tensor& x) {
  return x.device() == kCpu;
}

std::string layout_text(const Tensor& x, bool strides) {
  std::string text = fmt::format(" {} {}", dtype_name(x.dtype()), to_string(x.shape()));
  for (int i = 0; strides && i < x.rank(); ++i) text += fmt::format(" {}", x.strides()[i]);
  return text;
}

// The signature as a text: equal for calls for which the host does the same work. Models branch on the contents of
// tensors on the host.
std::string signature_text(std::string text, const std::vector<Tensor*>& inputs, const State& state,
                           bool in_place) {
  for (const Tensor* input : inputs)
    text += input->defined() ? layout_text(*input, false) : std::string(" none");
  for (const auto& [name, tensor] : state) {
    text += ' ' + name + layout_text(tensor, !in_place) + ' ';
    if (in_place || !on_host(tensor)) continue;
    const Tensor packed = raw::contiguous(tensor);
    text.append(static_cast<const char*>(packed.raw_data()), static_cast<std::size_t>(packed.bytes()));
  }
  return text;
}

// A tensor of the same layout with new, uninitialised memory; a row-major one if `packed`.
Tensor place_like(const Tensor& x, bool packed) {
  if (packed) return Tensor::empty(x.shape(), x.dtype(), x.device());
  std::int64_t span = 1;
  for (int i = 0; i < x.rank(); ++i) span += (x.dim(i) - 1) * x.strides()[i];
  const Tensor storage = Tensor::empty({x.elements() == 0 ? 0 : span}, x.dtype(), x.device());
  return Tensor::over(storage.buffer(), 0, x.shape(), x.strides(), x.dtype());
}

// Whether a state has the tensors of another, by name and layout.
bool same_layout(const State& a, const State& b, bool strides) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const State::Entry& entry) {
           const Tensor* const other = b.find(entry.first);
           return other != nullptr && entry.second.device() == other->device() &&
                  layout_text(entry.second, strides) == layout_text(*other, strides);
         });
}

// Copies the tensors of a state on the device to their places, unless they already lie there. Tensors in the
// memory of a place are copied aside first, since writing another place could overwrite them.
void put_into(const State& places, const State& state) {
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [name, place] : places) {
    const Tensor& from = state.get(name);
    if (on_host(place) || from.raw_data() == place.raw_data()) continue;
    const bool shared = std::any_of(places.begin(), places.end(), [&](const State::Entry& entry) {
      return entry.second.buffer().get() == from.buffer().get();
    });
    copies.emplace_back(place, shared ? raw::copy(from) : from);
  }
  for (const auto& [place, from] : copies) raw::copy_into(place, from);
}

// A tensor on the host after a replay: counts advance from `now` by as much as they did during capture.
Tensor advanced(const Tensor* now, const Tensor* before, const Tensor& after) {
  if (after.dtype() != Dtype::i64 || before == nullptr || before->shape() != after.shape()) return after;
  std::vector<std::int64_t> numbers = raw::contiguous(*now).to_vector<std::int64_t>();
  const std::vector<std::int64_t> from = raw::contiguous(*before).to_vector<std::int64_t>(),
                                  to = raw::contiguous(after).to_vector<std::int64_t>();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += to[i] - from[i];
  return Tensor::from(numbers, after.shape());
}

}  // namespace

// Tensors that are sent to the device by one copy: they lie in one buffer on the host and one on the device,
// each aligned to 64 bytes.
class Recorder::Inputs {
 public:
  Inputs(const std::vector<Tensor*>& like, Device device) {
    constexpr std::int64_t kAlign = 64;
    std::int64_t bytes = 0;
    for (const Tensor* input : like)
      if (input->defined()) bytes += (input->bytes() + kAlign - 1) / kAlign * kAlign;
    bytes_on_host_ = Tensor::zeros({bytes}, Dtype::u8);
    bytes_on_device_ = Tensor::empty({bytes}, Dtype::u8, device);
    std::int64_t first = 0;
    for (const Tensor* input : like) {
      on_host_.push_back(view(bytes_on_host_, first, *input));
      on_device_.push_back(view(bytes_on_device_, first, *input));
      if (input->defined()) first += (input->bytes() + kAlign - 1) / kAlign * kAlign;
    }
  }

  // Sends the inputs, without waiting, and moves them to the device.
  void send(const std::vector<Tensor*>& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]->defined()) raw::copy_into(on_host_[i], *inputs[i]);
    raw::copy_into(bytes_on_device_, raw::to_device(bytes_on_host_, bytes_on_device_.device()));
    place(inputs);
  }
  // Makes the inputs the tensors on the device, whatever these hold.
  void place(const std::vector<Tensor*>& inputs) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) *inputs[i] = on_device_[i];
  }

 private:
  // A row-major tensor of x's shape and dtype in a buffer, from byte `first` on.
  static Tensor view(const Tensor& bytes, std::int64_t first, const Tensor& x) {
    if (!x.defined()) return {};
    std::int64_t strides[kMaxRank] = {}, step = 1;
    for (int i = x.rank() - 1; i >= 0; --i) {
      strides[i] = step;
      step *= x.dim(i);
    }
    return Tensor::over(bytes.buffer(), first / static_cast<std::int64_t>(dtype_bytes(x.dtype())), x.shape(),
                        strides, x.dtype());
  }

  Tensor bytes_on_host_, bytes_on_device_;
  std::vector<Tensor> on_host_, on_device_;
};

// Captured work. The graph is destroyed first.
struct Recorder::Graph {
  Inputs inputs;
  State before, after;  // tensors on the host: their values at the time of capture
  AnyResult result;
  bool writes_parameters = false;
  std::unique_ptr<CapturedWork> work;
};

Recorder::Recorder(const ParamStore& params, const RecorderOptions& options)
    : params_(params), options_(options) {
  options_.wanted = options.wanted && can_capture(params.values().device());
}

Recorder::~Recorder() = default;

void Recorder::set_message(const std::string& text) {
  if (!message_) message_ = text;
}

std::string Recorder::take_message() {
  return message_ ? std::exchange(*message_, std::string()) : std::string();
}

Recorder::AnyResult Recorder::run_any(const std::optional<std::string>& signature,
                                      const std::vector<Tensor*>& inputs, State& state, const AnyWork& work) {
  if (signature && options_.wanted)
    if (Graph* const graph =
            find(signature_text(*signature, inputs, state, options_.in_place), inputs, state, work))
      return replay(*graph, inputs, state);
  if (const Device device = params_.values().device(); device != kCpu) Inputs(inputs, device).send(inputs);
  return work(state);
}

Recorder::Graph* Recorder::find(const std::string& signature, const std::vector<Tensor*>& inputs,
                                const State& state, const AnyWork& work) {
  if (!entries_.contains(signature) && entries_.size() == kMostSignatures) {
    set_message(
        fmt::format("more than {} kinds of {}: new ones run uncaptured", entries_.size(), options_.work));
    return nullptr;
  }
  Entry& entry = entries_[signature];
  if (entry.graph == nullptr && !entry.tried && entry.seen++ >= kCaptureWarmUp) {
    entry.tried = true;
    if (graphs_ == options_.graphs) {
      set_message(fmt::format("{} of more than {} kinds: the others run uncaptured", options_.work, graphs_));
    } else {
      try {
        entry.graph = record(inputs, state, work);
        ++graphs_;
      } catch (const Error& error) {
        set_message(fmt::format("{} run uncaptured: {}", options_.work, error.what()));
      }
    }
  }
  return entry.graph.get();
}

State Recorder::places_of(const State& state) {
  for (const State& places : places_)
    if (same_layout(places, state, !options_.in_place)) return places;
  State places;
  for (const auto& [name, tensor] : state) places.set(name, place_like(tensor, options_.in_place));
  places_.push_back(places);
  return places;
}

std::unique_ptr<Recorder::Graph> Recorder::record(const std::vector<Tensor*>& inputs, const State& state,
                                                  const AnyWork& work) {
  const Tensor& values = params_.values();
  std::unique_ptr<Graph> graph(new Graph{Inputs(inputs, values.device()), {}, {}, {}, false, {}});
  const State from = places_of(state);
  for (const auto& [name, tensor] : state)
    graph->before.set(name, on_host(tensor) ? raw::copy(tensor) : from.get(name));
  // A graph that writes the parameters also renews their bf16 copy; replay() makes sure that the copy exists
  // when it begins.
  params_.renew_bf16_copy();
  // Capturing runs no kernel, so what it marked as written is not computed yet, or never: the parameters are
  // marked as changed once more. The inputs are given back.
  struct AfterAll {
    Recorder::Graph& graph;
    const Tensor& values;
    const std::vector<Tensor*>& inputs;
    std::vector<Tensor> given;
    std::uint32_t version;
    ~AfterAll() {
      graph.writes_parameters = values.buffer()->version() != version;
      if (graph.writes_parameters) wrote_in_place(values, "captured work");
      for (std::size_t i = 0; i < given.size(); ++i) *inputs[i] = given[i];
    }
  } after_all{*graph, values, inputs, {}, values.buffer()->version()};
  for (const Tensor* input : inputs) after_all.given.push_back(*input);
  graph->inputs.place(inputs);
  graph->work = capture(values.device(), [&] {
    State after = graph->before;
    graph->result = work(after);
    const State to = options_.in_place ? places_of(after) : after;
    if (options_.in_place) put_into(to, after);
    for (const auto& [name, tensor] : after) graph->after.set(name, on_host(tensor) ? tensor : to.get(name));
  });
  return graph;
}

Recorder::AnyResult Recorder::replay(Graph& graph, const std::vector<Tensor*>& inputs, State& state) {
  graph.inputs.send(inputs);
  put_into(graph.before, state);
  params_.renew_bf16_copy();
  graph.work->replay();
  if (graph.writes_parameters) {
    const Tensor& values = params_.values();
    wrote_in_place(values, "captured work");
    // The graph has updated the bf16 copy too.
    values.buffer()->mark_derived_current();
  }
  State next;
  for (const auto& [name, tensor] : graph.after)
    next.set(name, on_host(tensor) ? advanced(state.find(name), graph.before.find(name), tensor) : tensor);
  state = std::move(next);
  return graph.result;
}

}  // namespace eddy::training
