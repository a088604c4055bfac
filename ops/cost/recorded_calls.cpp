// Recording by wrappers in the slots; and where the operands of each kind of call begin and end.
#include "ops/cost/recorded_calls.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "ops/attention/attention_partials.h"
#include "ops/core/cpu_path.h"
#include "ops/core/op_spec.h"
#include "ops/cost/kernel_costs.h"
#include "ops/cost/slot_wrapper.h"
#include "ops/product/packed_gemm.h"
#include "tensor/transfer.h"

namespace eddy {

using namespace detail;

namespace {

std::vector<RecordedCall>* current_record = nullptr;

struct Recording {
  template <class Args>
  static void run(const char*, const Args& args, void (*kernel)(const Args&)) {
    current_record->push_back(args);
    kernel(args);
  }
};

// Whether a call changes an operand. What it writes it may read as well.
enum class Use { reads, writes };

std::int64_t bytes_of(Dtype dtype, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(dtype_bytes(dtype));
}

// The elements from the first to the last one of a batch of matrices.
std::int64_t extent(const GemmArgs& g, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                    std::int64_t stride, std::int64_t outer_stride) {
  if (rows == 0 || columns == 0 || g.batch == 0 || g.outer == 0) return 0;
  return (g.outer - 1) * outer_stride + (g.batch - 1) * stride + (rows - 1) * row_stride + columns;
}

// Each function calls visit(pointer, before, bytes, use) for every operand: of so many bytes, from `before` bytes
// behind its pointer. The pointer may be null.
template <class Visit>
void each_operand(GemmArgs& g, Device, Visit&& visit) {
  const Dtype out = g.c_f32 ? Dtype::f32 : g.dtype;
  const auto matrix = [&g](bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                           std::int64_t stride, std::int64_t outer_stride) {
    return transposed ? extent(g, columns, rows, row_stride, stride, outer_stride)
                      : extent(g, rows, columns, row_stride, stride, outer_stride);
  };
  visit(g.a, 0, bytes_of(g.dtype, matrix(g.transpose_a, g.m, g.k, g.lda, g.stride_a, g.outer_a)), Use::reads);
  visit(g.b, 0, bytes_of(g.dtype, matrix(g.transpose_b, g.k, g.n, g.ldb, g.stride_b, g.outer_b)), Use::reads);
  const std::int64_t result = bytes_of(out, extent(g, g.m, g.n, g.ldc, g.stride_c, g.outer_c));
  visit(g.c, 0, result, Use::writes);
  visit(g.addend, 0, result, Use::reads);
  visit(g.bias, 0, bytes_of(out, g.n), Use::reads);
  if (g.panels_b == nullptr) return;
  const PackedGemmKernels& kernels = packed_gemm_kernels(g.precision);
  const std::int64_t elements =
      g.dtype == Dtype::f64 ? kernels.f64.packed_elements(g.k, g.n) : kernels.f32.packed_elements(g.k, g.n);
  visit(g.panels_b, 0, bytes_of(g.dtype, elements), Use::reads);
}

// Calls visit for rows of a sequence, of which the first `before` are elsewhere.
template <class Pointer, class Visit>
void visit_rows(const AttentionArgs& a, Pointer& pointer, const AttentionStrides& strides,
                std::int64_t before, std::int64_t rows, std::int64_t heads, Use use, Visit&& visit) {
  if (rows <= 0) return;
  visit(pointer, bytes_of(a.dtype, before * strides.time),
        bytes_of(a.dtype, (a.batch - 1) * strides.batch + (rows - 1) * strides.time +
                              (heads - 1) * strides.head + a.head_size),
        use);
}

Dtype table_dtype(const AttentionArgs& a) {
  return a.dtype == Dtype::bf16 ? Dtype::f32 : a.dtype;
}

template <class Visit>
void visit_attention(AttentionArgs& a, const AttentionBackwardArgs* gradient, Device device, Visit&& visit) {
  const Dtype tables = table_dtype(a);
  const std::int64_t own = a.keys - a.past, rows = a.batch * a.heads * a.queries;
  visit_rows(a, a.q, a.q_strides, 0, a.queries, a.heads, Use::reads, visit);
  visit_rows(a, a.k, a.k_strides, a.past, own, a.kv_heads, Use::reads, visit);
  visit_rows(a, a.v, a.v_strides, a.past, own, a.kv_heads, Use::reads, visit);
  visit_rows(a, a.past_k, a.past_k_strides, 0, a.past, a.kv_heads, Use::reads, visit);
  visit_rows(a, a.past_v, a.past_v_strides, 0, a.past, a.kv_heads, Use::reads, visit);
  visit(a.head_scale, 0, bytes_of(tables, a.heads), Use::reads);
  visit(a.bias, 0, bytes_of(tables, (a.heads - 1) * a.bias_stride + a.distances), Use::reads);
  visit(a.positions, 0, bytes_of(tables, (a.distances - 1) * a.positions_stride + a.head_size), Use::reads);
  visit(a.output, 0, bytes_of(a.dtype, rows * a.head_size), Use::writes);
  visit(a.log_sum, 0, bytes_of(tables, rows), Use::writes);
  visit(a.scratch, 0,
        bytes_of(uses_cpu_path(device) ? a.dtype : Dtype::f32, attention_workspace(a, gradient, device)),
        Use::writes);
  a.dropout_key.step_base = nullptr;  // the step's number is the recorder's
}

template <class Visit>
void each_operand(AttentionArgs& a, Device device, Visit&& visit) {
  visit_attention(a, nullptr, device, visit);
}

template <class Visit>
void each_operand(AttentionBackwardArgs& g, Device device, Visit&& visit) {
  AttentionArgs& a = g.forward;
  visit_attention(a, &g, device, visit);
  const Dtype tables = table_dtype(a);
  const std::int64_t own = a.keys - a.past;
  visit_rows(a, g.doutput, g.doutput_strides, 0, a.queries, a.heads, Use::reads, visit);
  visit_rows(a, g.dq, g.dq_strides, 0, a.queries, a.heads, Use::writes, visit);
  visit_rows(a, g.dk, g.dk_strides, a.past, own, a.kv_heads, Use::writes, visit);
  visit_rows(a, g.dv, g.dv_strides, a.past, own, a.kv_heads, Use::writes, visit);
  visit_rows(a, g.past_dk, g.past_dk_strides, 0, a.past, a.kv_heads, Use::writes, visit);
  visit_rows(a, g.past_dv, g.past_dv_strides, 0, a.past, a.kv_heads, Use::writes, visit);
  // On the CPU the gradients of the tables themselves; else a partial table for each run of sequences and head.
  const bool on_cpu = uses_cpu_path(device);
  const std::int64_t parts = (on_cpu ? 1 : attention_table_runs(a.batch, a.heads).runs) * a.heads;
  visit(g.dhead_scale, 0, bytes_of(tables, a.heads), Use::writes);
  visit(g.dbias, 0, bytes_of(tables, (parts - 1) * g.dbias_stride + a.distances), Use::writes);
  visit(g.dpositions, 0,
        bytes_of(tables, (on_cpu ? 0 : parts - 1) * g.dpositions_part +
                             (a.distances - 1) * g.dpositions_stride + a.head_size),
        Use::writes);
  visit(g.q_unit, 0, bytes_of(Dtype::f32, a.batch * a.queries * a.heads), Use::reads);
  visit(g.k_unit, 0, bytes_of(Dtype::f32, a.batch * own * a.kv_heads), Use::reads);
}

// Ranges of addresses, and where each lies in memory that has room for all.
class Ranges {
 public:
  void add(std::uintptr_t begin, std::int64_t bytes) {
    // Whole lines: the places keep each operand's alignment.
    const std::uintptr_t end = begin + static_cast<std::uintptr_t>(bytes);
    ranges_.push_back({begin / kLine * kLine, (end + kLine - 1) / kLine * kLine, 0});
  }
  // Joins ranges that touch, and gives each its place. Returns the bytes of all.
  std::int64_t place() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> joined;
    for (const Range& range : ranges_) {
      if (joined.empty() || range.begin > joined.back().end)
        joined.push_back(range);
      else
        joined.back().end = std::max(joined.back().end, range.end);
    }
    std::uintptr_t bytes = 0;
    for (Range& range : joined) {
      range.at = bytes;
      bytes += range.end - range.begin;
    }
    ranges_ = std::move(joined);
    return static_cast<std::int64_t>(bytes);
  }
  // Returns how far an address of some range lies from the start of the memory.
  std::uintptr_t place_of(std::uintptr_t address) const {
    auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                  [](std::uintptr_t one, const Range& range) { return one < range.begin; });
    --after;
    return after->at + (address - after->begin);
  }

 private:
  static constexpr std::uintptr_t kLine = 256;
  struct Range {
    std::uintptr_t begin, end, at;
  };
  std::vector<Range> ranges_;
};

std::uintptr_t number_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

Cost cost_of(const RecordedCall& call) {
  return std::visit([](const auto& args) { return work::cost_of(args); }, call);
}

RecordCalls::RecordCalls(Device device) : device_(device) {
  install_backends();
  current_record = new std::vector<RecordedCall>;
  WrappedSlot<gemm_slot, Recording>::install(device.type);
  WrappedSlot<attention_forward_slot, Recording>::install(device.type);
  WrappedSlot<attention_backward_slot, Recording>::install(device.type);
}

RecordCalls::~RecordCalls() {
  WrappedSlot<gemm_slot, Recording>::restore(device_.type);
  WrappedSlot<attention_forward_slot, Recording>::restore(device_.type);
  WrappedSlot<attention_backward_slot, Recording>::restore(device_.type);
  delete std::exchange(current_record, nullptr);
}

std::vector<RecordedCall> RecordCalls::take() {
  return std::exchange(*current_record, {});
}

RepeatedCalls::RepeatedCalls(std::vector<RecordedCall> calls, Device device)
    : calls_(std::move(calls)), device_(device) {
  std::array<Ranges, 2> ranges;
  const auto ranges_of = [&ranges](Use use) -> Ranges& { return ranges[use == Use::reads ? 0 : 1]; };
  const auto each = [this](auto&& visit) {
    for (RecordedCall& call : calls_)
      std::visit([&](auto& args) { each_operand(args, device_, visit); }, call);
  };
  each([&](const auto& pointer, std::int64_t before, std::int64_t bytes, Use use) {
    if (pointer != nullptr && bytes > 0)
      ranges_of(use).add(number_of(pointer) + static_cast<std::uintptr_t>(before), bytes);
  });
  // In bf16: two beside each other are also a finite f32, and four a finite f64. A GPU draws less power for equal
  // numbers, and the CPU takes seconds for more than a million.
  const std::int64_t numbers = ranges[0].place() / 2;
  const std::int64_t period = std::clamp<std::int64_t>(numbers, 1, std::int64_t{1} << 20);
  const Tensor some = raw::cast(sample_normal({1, period}, "repeated_calls"), Dtype::bf16);
  read_ = raw::copy(raw::expand(raw::to_device(some, device), {numbers / period + 1, period}));
  written_ = Tensor::zeros({std::max<std::int64_t>(1, ranges[1].place() / 4)}, Dtype::f32, device);
  each([&](auto& pointer, std::int64_t before, std::int64_t bytes, Use use) {
    if (pointer == nullptr || bytes == 0) return;
    const auto ahead = static_cast<std::uintptr_t>(before);
    const std::uintptr_t start = number_of((use == Use::reads ? read_ : written_).raw_data());
    using Pointer = std::remove_cvref_t<decltype(pointer)>;
    pointer = reinterpret_cast<Pointer>(start + ranges_of(use).place_of(number_of(pointer) + ahead) - ahead);
  });
}

void RepeatedCalls::run() const {
  for (const RecordedCall& call : calls_) {
    if (const auto* product = std::get_if<GemmArgs>(&call)) gemm_slot(device_, *product);
    if (const auto* forward = std::get_if<AttentionArgs>(&call)) attention_forward_slot(device_, *forward);
    if (const auto* backward = std::get_if<AttentionBackwardArgs>(&call))
      attention_backward_slot(device_, *backward);
  }
}

}  // namespace eddy
