// The kinds of tokens; capturing one, and replaying it.
#include "train/generate/captured_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "autograd/tape.h"
#include "ops/core/capture.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

bool on_host(const Tensor& x) {
  return x.device() == kCpu;
}

// A row-major tensor of the same shape and dtype with new memory.
Tensor place_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
}

bool same_layout(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.device() == b.device();
}

// Whether a state has the tensors of another, by name and layout.
bool same_layout(const State& a, const State& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.begin(), a.end(), [&b](const State::Entry& entry) {
    const Tensor* const other = b.find(entry.first);
    return other != nullptr && same_layout(entry.second, *other);
  });
}

// Copies the state after a token into the memory that the next token reads. Tensors that share that memory
// are copied aside first, since one may be a view of another.
void put_back(const State& places, const State& after) {
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [name, place] : places) {
    const Tensor& from = after.get(name);
    if (on_host(place) || from.raw_data() == place.raw_data()) continue;
    const bool shared = std::any_of(places.begin(), places.end(), [&](const State::Entry& entry) {
      return entry.second.buffer().get() == from.buffer().get();
    });
    copies.emplace_back(place, shared ? raw::copy(from) : from);
  }
  for (const auto& [place, from] : copies) raw::copy_into(place, from);
}

}  // namespace

// A captured token: its inputs, its results, and the graph, which is destroyed first.
struct CapturedStream::Graph {
  State before, after;  // tensors on the host: the counts at the time of capture
  Tensor tokens, logits;
  std::unique_ptr<CapturedWork> graph;
};

CapturedStream::CapturedStream(const Model& model, bool wanted)
    : model_(model),
      device_(model.params().values().device()),
      wanted_(wanted && can_capture(device_)),
      kinds_({kMaxGraphs, kMaxKinds, "tokens", "(places in a block)"}) {}

CapturedStream::~CapturedStream() = default;

Tensor CapturedStream::step(std::span<const std::int32_t> ids, State& state) {
  const NoGrad no_grad;
  const auto rows = static_cast<std::int64_t>(ids.size());
  if (const std::optional<std::string> kind = wanted_ ? kind_of(rows, state) : std::nullopt)
    if (Graph* const graph = kinds_.find(*kind, [&] { return record(rows, state); }))
      return replay(*graph, ids, state);
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>(ids.begin(), ids.end()), {rows, 1});
  return raw::to_device(logits_of(raw::to_device(tokens, device_), state), kCpu);
}

// f32 [rows, n_out], contiguous, on the model's device.
Tensor CapturedStream::logits_of(const Tensor& tokens, State& state) const {
  const Tensor last = raw::contiguous(raw::select(model_.stream(tokens, state), 1, 0));
  return last.dtype() == Dtype::f32 ? last : raw::cast(last, Dtype::f32);
}

std::optional<std::string> CapturedStream::kind_of(std::int64_t rows, const State& state) {
  const auto place = model_.stream_place(state);
  if (!place) {
    kinds_.set_message(fmt::format("tokens of {} run uncaptured: no two positions ask for the same work",
                                   model_.config().model));
    return std::nullopt;
  }
  std::string text = fmt::format("{} [{}]", rows, fmt::join(*place, " "));
  for (const auto& [name, tensor] : state)
    text += fmt::format(" {} {} {}", name, dtype_name(tensor.dtype()), to_string(tensor.shape()));
  return text;
}

State CapturedStream::places_of(const State& state) {
  for (const State& places : places_)
    if (same_layout(places, state)) return places;
  State places;
  for (const auto& [name, tensor] : state) places.set(name, place_like(tensor));
  places_.push_back(places);
  return places;
}

std::unique_ptr<CapturedStream::Graph> CapturedStream::record(std::int64_t rows, const State& state) {
  auto graph = std::make_unique<Graph>();
  const State from = places_of(state);
  for (const auto& [name, tensor] : state)
    graph->before.set(name, on_host(tensor) ? raw::copy(tensor) : from.get(name));
  graph->tokens = Tensor::empty({rows, 1}, Dtype::i32, device_);
  graph->graph = capture(device_, [&] {
    State work = graph->before;
    graph->logits = logits_of(graph->tokens, work);
    const State to = places_of(work);
    put_back(to, work);
    for (const auto& [name, tensor] : work) graph->after.set(name, on_host(tensor) ? tensor : to.get(name));
  });
  return graph;
}

Tensor CapturedStream::replay(Graph& graph, std::span<const std::int32_t> ids, State& state) {
  for (const auto& [name, place] : graph.before)
    if (const Tensor& from = state.get(name); !on_host(place) && from.raw_data() != place.raw_data())
      raw::copy_into(place, from);
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>(ids.begin(), ids.end()), graph.tokens.shape());
  raw::copy_into(graph.tokens, raw::to_device(tokens, device_));
  graph.graph->replay();
  State next;
  for (const auto& [name, tensor] : graph.after) {
    const Tensor* const then = graph.before.find(name);
    const bool count =
        on_host(tensor) && tensor.dtype() == Dtype::i64 && then != nullptr && then->shape() == tensor.shape();
    if (!count) {
      next.set(name, tensor);
      continue;
    }
    // Counts on the host advance by as much as they did during capture.
    std::vector<std::int64_t> numbers = raw::contiguous(state.get(name)).to_vector<std::int64_t>();
    const std::vector<std::int64_t> from = raw::contiguous(*then).to_vector<std::int64_t>(),
                                    to = raw::contiguous(tensor).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += to[i] - from[i];
    next.set(name, Tensor::from(numbers, tensor.shape()));
  }
  state = std::move(next);
  return raw::to_device(graph.logits, kCpu);
}

}  // namespace eddy
