// The backward of SeqBuffer follows the picture in the header: a window selects rows, so its transpose adds
// dy to those rows; an append stores rows, so its transpose reads them out again.
#include "autograd/seq_buffer.h"

#include <algorithm>

#include "tensor/base/format.h"

namespace eddy {
namespace {

// Checks that `rows` can be written into `data` along `axis`.
void check_rows(const Tensor& rows, const Tensor& data, int axis) {
  if (!rows.defined()) fail<ValueError>("SeqBuffer.append: the rows are undefined");
  if (rows.dtype() != data.dtype())
    fail<DtypeError>("SeqBuffer.append: rows of {} for a buffer of {} (cast them first)",
                     dtype_name(rows.dtype()), dtype_name(data.dtype()));
  if (rows.device() != data.device())
    fail<DeviceError>("SeqBuffer.append: rows on {} for a buffer on {} (use to_device)",
                      to_string(rows.device()), to_string(data.device()));
  bool fits = rows.rank() == data.rank();
  for (int i = 0; fits && i < rows.rank(); ++i) fits = i == axis || rows.shape()[i] == data.shape()[i];
  if (!fits)
    fail<ShapeError>("SeqBuffer.append: rows {} for a buffer {} (equal sizes on all axes but axis {})",
                     to_string(rows.shape()), to_string(data.shape()), axis);
}

Tensor as_dtype(const Tensor& x, Dtype dtype) {
  return x.dtype() == dtype ? x : raw::cast(x, dtype);
}

}  // namespace

struct SeqBuffer::Storage {
  Tensor data;
  int axis = 0;
  std::int64_t written = 0;  // rows of the newest version
};

// Shared by the tracked appends: the gradient of the rows from `first` on. bf16 rows are summed in f32.
struct SeqBuffer::Chain {
  detail::GradSlot slot;
  std::int64_t first = 0;
};

class SeqBuffer::AppendNode final : public Node {
 public:
  AppendNode(std::shared_ptr<Chain> chain, int axis, std::int64_t start, std::int64_t length)
      : Node("SeqBuffer.append", 1), chain_(std::move(chain)), axis_(axis), start_(start), length_(length) {}

  detail::GradSlot& slot(int) override { return chain_->slot; }

  void vjp(VjpContext& context) override {
    // A copy, not a view: a second owner would make the next window's addition copy the whole buffer.
    context.sink.into(1, [&](const Tensor& dst, float beta) {
      const Tensor part = as_dtype(raw::narrow(chain_->slot.grad, axis_, start_, length_), dst.dtype());
      if (beta == 0)
        raw::copy_into(dst, part);
      else
        raw::add_into(dst, part);
    });
    if (context.sink.needs(0)) {
      context.sink.enqueue(0);
    } else {  // this was the oldest append, so the shared gradient is not read any more
      chain_->slot.grad = Tensor();
    }
  }

 private:
  std::shared_ptr<Chain> chain_;
  int axis_;
  std::int64_t start_, length_;  // rows of the shared gradient
};

SeqBuffer::SeqBuffer(const Shape& shape, int axis, Dtype dtype, Device device) {
  if (!is_floating(dtype))
    fail<DtypeError>("SeqBuffer: a buffer of {} (floating types only)", dtype_name(dtype));
  if (shape.rank() == 0)
    fail<ShapeError>("SeqBuffer: the shape {} has no axis for the rows", to_string(shape));
  const int rows_axis = shape.normal_axis(axis);
  storage_ = std::make_shared<Storage>();
  storage_->data = Tensor::empty(shape, dtype, device);
  storage_->axis = rows_axis;
  version_ = storage_->data;
}

const SeqBuffer::Storage& SeqBuffer::storage(const char* what) const {
  if (storage_ == nullptr) fail<ValueError>("{}: the buffer is undefined (give it a shape first)", what);
  return *storage_;
}

std::int64_t SeqBuffer::capacity() const {
  const Storage& mine = storage("SeqBuffer.capacity");
  return mine.data.shape()[mine.axis];
}
int SeqBuffer::axis() const {
  return storage("SeqBuffer.axis").axis;
}
Dtype SeqBuffer::dtype() const {
  return storage("SeqBuffer.dtype").data.dtype();
}
Device SeqBuffer::device() const {
  return storage("SeqBuffer.device").data.device();
}

SeqBuffer SeqBuffer::append(const Tensor& rows) const {
  const Storage& mine = storage("SeqBuffer.append");
  check_rows(rows, mine.data, mine.axis);
  const std::int64_t length = rows.shape()[mine.axis];
  if (count_ != mine.written)
    fail<GraphError>(
        "SeqBuffer.append: this version has {} rows and {} were written already (append to the newest "
        "version only; a function recomputed by checkpoint must not append)",
        count_, mine.written);
  if (length > capacity() - count_)
    fail<ShapeError>("SeqBuffer.append: {} rows behind {} exceed the capacity of {} (make the buffer larger)",
                     length, count_, capacity());
  if (anomaly_mode()) detail::check_finite_result("SeqBuffer.append", rows);

  SeqBuffer next = *this;
  if (length == 0) return next;
  next.count_ += length;
  if (grad_enabled() && requires_grad(rows)) {
    if (next.chain_ == nullptr) {
      next.chain_ = std::make_shared<Chain>();
      next.chain_->first = count_;
      next.chain_->slot.shape = mine.data.shape();
      next.chain_->slot.dtype = dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
      next.chain_->slot.device = device();
    }
    auto node = make_ref<AppendNode>(next.chain_, mine.axis, count_ - next.chain_->first, length);
    node->add_edge(version_);
    node->add_edge(rows);
    next.version_ = raw::alias(mine.data);
    next.version_.set_autograd(Ref<AutogradData>(new detail::Variable(node, 0)));
  }
  raw::copy_into(raw::narrow(mine.data, mine.axis, count_, length), rows);
  storage_->written = next.count_;
  if (next.chain_ != nullptr) next.chain_->slot.shape[mine.axis] = next.count_ - next.chain_->first;
  return next;
}

Tensor SeqBuffer::window(std::int64_t begin, std::int64_t end) const {
  const Storage& mine = storage("SeqBuffer.window");
  if (begin < 0 || begin > end || end > count_)
    fail<ShapeError>("SeqBuffer.window: rows {} to {} of {} (0 <= begin <= end <= count)", begin, end,
                     count_);
  const Tensor view = raw::narrow(mine.data, mine.axis, begin, end - begin);
  if (chain_ == nullptr || begin == end || end <= chain_->first) return view;
  const std::int64_t skipped =
      std::max<std::int64_t>(chain_->first - begin, 0);  // rows from before the tracked ones
  const std::int64_t start = begin + skipped - chain_->first, length = end - begin - skipped;
  return record("SeqBuffer.window", {version_}, view, {},
                [axis = mine.axis, skipped, start, length](VjpContext& context) {
                  context.sink.slice(0, axis, start, length, [&](const Tensor& dst) {
                    raw::add_into(dst,
                                  as_dtype(raw::narrow(context.dy(), axis, skipped, length), dst.dtype()));
                  });
                });
}

SeqBuffer SeqBuffer::detach() const {
  SeqBuffer plain = *this;
  plain.chain_ = nullptr;
  if (storage_ != nullptr) plain.version_ = storage_->data;
  return plain;
}

}  // namespace eddy
