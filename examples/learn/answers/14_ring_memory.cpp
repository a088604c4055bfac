// The answer to exercise 14.
#include <algorithm>
#include <cstddef>
#include <vector>

class Ring {
 public:
  explicit Ring(std::size_t capacity) : slots_(capacity) {}

  void write(const std::vector<double>& numbers) {
    for (const double x : numbers) slots_[written_++ % slots_.size()] = x;
  }

  std::size_t positions() const { return written_; }
  std::size_t size() const { return std::min(written_, slots_.size()); }
  std::vector<double> in_order() const {
    std::vector<double> result;
    for (std::size_t p = written_ - size(); p < written_; ++p) result.push_back(slots_[p % slots_.size()]);
    return result;
  }

  const std::vector<double>& slots() const { return slots_; }

 private:
  std::vector<double> slots_;
  std::size_t written_ = 0;
};
