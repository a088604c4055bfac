// Ranks that are threads of one process and exchange bytes in memory.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "train/ranks/ranks.h"

namespace eddy::test {

using namespace training;

// The bytes on their way, by sender, receiver and tag.
struct Mail {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::tuple<int, int, int>, std::deque<std::byte>> ways;
};

class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(Mail& mail, int rank, int size) : mail_(mail), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int rank) const override { return "rank " + std::to_string(rank); }
  void set_timeout(double) override {}
  std::unique_ptr<Exchange> begin(int other, std::span<const std::byte> out, std::span<std::byte> in,
                                  int tag) override {
    sent += static_cast<std::int64_t>(out.size());
    const std::lock_guard lock(mail_.mutex);
    std::deque<std::byte>& to = mail_.ways[{rank_, other, tag}];
    to.insert(to.end(), out.begin(), out.end());
    mail_.arrived.notify_all();
    return std::make_unique<InMemory>(mail_, mail_.ways[{other, rank_, tag}], in);
  }
  std::int64_t sent = 0;

 private:
  class InMemory final : public Exchange {
   public:
    InMemory(Mail& mail, std::deque<std::byte>& from, std::span<std::byte> in)
        : mail_(mail), from_(from), in_(in) {}
    bool done() override {
      const std::lock_guard lock(mail_.mutex);
      return take();
    }
    void wait(Patience) override {
      std::unique_lock lock(mail_.mutex);
      mail_.arrived.wait(lock, [this] { return take(); });
    }

    bool take_back() override { return true; }

   private:
    bool take() {
      if (from_.size() < in_.size()) return false;
      const auto end = from_.begin() + static_cast<std::ptrdiff_t>(in_.size());
      std::copy(from_.begin(), end, in_.begin());
      from_.erase(from_.begin(), end);
      in_ = {};
      return true;
    }
    Mail& mail_;
    std::deque<std::byte>& from_;  // of a map, whose entries stay where they are
    std::span<std::byte> in_;
  };
  Mail& mail_;
  int rank_, size_;
};

// Runs `work` on so many ranks at once, and throws what one of them threw.
inline void on_ranks(int size, const std::function<void(ThreadRanks&)>& work) {
  Mail mail;
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ThreadRanks ranks(mail, rank, size);
        work(ranks);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace eddy::test
