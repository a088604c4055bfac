// The levels of a sum over ranks, one exchange each.
#include "train/ranks/tree_collective.h"

#include <bit>
#include <list>
#include <mutex>
#include <utility>

#include "ops/core/peers.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy::training {
namespace {

std::span<std::byte> bytes_of_tensor(const Tensor& x) {
  if (!x.defined() || x.elements() == 0) return {};
  return {static_cast<std::byte*>(x.raw_data()), static_cast<std::size_t>(x.bytes())};
}

// Whether one of the ranks of a subtree is present:
// those whose numbers agree with `rank` above the lowest `level` bits.
bool subtree_present(const std::vector<bool>& present, int rank, int level) {
  const auto begin = static_cast<std::size_t>(rank) >> level << level;
  for (std::size_t i = begin; i < begin + (std::size_t{1} << level); ++i)
    if (present[i]) return true;
  return false;
}

// What exchanges that could not be taken back may still read and write.
struct LeftMemory {
  std::mutex mutex;
  std::list<Tensor> tensors;
};
LeftMemory& left_memory() {
  static auto* const left = new LeftMemory;  // never destroyed
  return *left;
}

}  // namespace

BinaryTree::BinaryTree(Part whole, int ranks, const Choose& choose) : parts_{{whole}} {
  for (int level = 0; (1 << level) < ranks; ++level) {
    const std::vector<Part> before = parts_.back();
    std::vector<Part> after(before.size() * 2);
    for (std::size_t low = 0; low < before.size(); ++low) {
      const Part part = before[low];
      const Cut cut = choose(level, static_cast<int>(low), part);
      const Part lower{part.begin, cut.at}, upper{cut.at, part.end};
      after[low] = cut.lower_first ? lower : upper;
      after[low + before.size()] = cut.lower_first ? upper : lower;
    }
    parts_.push_back(std::move(after));
  }
}

BinaryTree::BinaryTree(Part whole, int ranks)
    : BinaryTree(whole, ranks, [](int, int, Part part) { return Cut{part.begin + part.size() / 2}; }) {}

TreeCollective::TreeCollective(Ranks& ranks, const Tensor& x, BinaryTree tree, std::vector<bool> present,
                               int tag, Work work, const Tensor& space)
    : ranks_(ranks),
      memory_{raw::reshape(x, {x.elements()}), Tensor()},
      x_(memory_.front()),
      received_(memory_.back()),
      tree_(std::move(tree)),
      present_(std::move(present)),
      tag_(tag),
      work_(work),
      space_(space) {
  const int levels = tree_.levels();
  if (work == Work::all_gather) {
    steps_ = levels;
  } else {
    if (std::ssize(present_) != ranks.size())
      fail<ValueError>("TreeCollective: {} marks for {} ranks (one for each)", present_.size(), ranks.size());
    if (subtree_present(present_, 0, levels)) steps_ = work == Work::reduce_scatter ? levels : 2 * levels;
  }
  static_cast<void>(left_memory());  // the destructor could not ask for it
  if (x.device() != kCpu)
    enqueue();
  else
    static_cast<void>(advance());
}

TreeCollective::~TreeCollective() {
  if (enqueued_ != nullptr) enqueued_->abort();
  if (pending_ == nullptr || pending_->take_back()) return;
  const std::lock_guard lock(left_memory().mutex);
  left_memory().tensors.splice(left_memory().tensors.end(), memory_);
}

int TreeCollective::level_of(int step) const {
  const int levels = tree_.levels();
  if (!gathers(step)) return step;
  return work_ == Work::all_gather ? levels - 1 - step : 2 * levels - 1 - step;
}

Tensor TreeCollective::part(int level, int rank) const {
  const BinaryTree::Part part = tree_.part(level, rank);
  return raw::narrow(x_, 0, part.begin, part.size());
}

TreeCollective::Step TreeCollective::make_step() {
  const int level = level_of(step_), rank = ranks_.rank(), other = rank ^ (1 << level);
  const Tensor mine = part(level + 1, rank), theirs = part(level + 1, other);
  received_ = {};
  if (gathers(step_)) return {other, mine, theirs};
  const bool have = subtree_present(present_, rank, level), get = subtree_present(present_, other, level);
  if (get && have)
    received_ = space_.defined() ? raw::narrow(space_, 0, 0, mine.elements())
                                 : Tensor::empty(mine.shape(), x_.dtype(), x_.device());
  return {other, have ? theirs : Tensor(), !get ? Tensor() : have ? received_ : mine};
}

// a + b and b + a have the same bits.
void TreeCollective::add_received() {
  if (received_.defined()) raw::add_into(part(level_of(step_) + 1, ranks_.rank()), received_);
}

void TreeCollective::begin_step() {
  const Step step = make_step();
  pending_ = ranks_.begin(step.other, bytes_of_tensor(step.out), bytes_of_tensor(step.in), tag_);
}

void TreeCollective::end_step() {
  pending_ = nullptr;
  add_received();
  received_ = {};
  ++step_;
}

// The steps follow each other on the GPU, so they need one space for what arrives, and the host waits for none.
void TreeCollective::enqueue() {
  if (steps_ == 0) return;
  Peers& peers = ranks_.peers();
  if (!space_.defined())
    space_ = Tensor::empty({tree_.part(1, ranks_.rank()).size()}, x_.dtype(), x_.device());
  for (; step_ < steps_; ++step_) {
    const Step step = make_step();
    peers.exchange(step.other, step.out, step.in);
    if (received_.defined()) peers.beside([this] { add_received(); });
  }
  enqueued_ = &peers;
}

bool TreeCollective::advance() {
  while (step_ < steps_) {
    if (pending_ == nullptr) begin_step();
    if (!pending_->done()) return false;
    end_step();
  }
  return enqueued_ == nullptr;
}

void TreeCollective::finish() {
  if (enqueued_ != nullptr) enqueued_->finish();
  enqueued_ = nullptr;
  while (step_ < steps_) {
    if (pending_ == nullptr) begin_step();
    pending_->wait(Patience::limited);
    end_step();
  }
}

void all_reduce(Ranks& ranks, const Tensor& x, const std::vector<bool>& present) {
  TreeCollective(ranks, x, BinaryTree({0, x.elements()}, ranks.size()), present, 0,
                 TreeCollective::Work::all_reduce)
      .finish();
}

}  // namespace eddy::training
