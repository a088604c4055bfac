// CPU kernels of scans. Memory-bound: a step reads two numbers and writes one; with blocks it reads them twice.
//
// A unit of work is a block of time of up to kLanes channels that lie side by side, which go through time together.
// Where channels are narrow, it is kChains blocks or channels that lie apart: no vectors, but as many independent
// chains of multiply-adds as hide their latency.
#include "ops/recurrence/scan.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/rows.h"

namespace eddy::EDDY_ISA {
namespace {

// 512 channels are 2 KiB of a row: at 64 a step begins in another page than the last one, which costs more than its
// work (docs/choices.md). 8 chains have more streams than the first cache has ways.
constexpr std::int64_t kLanes = kScanLanes, kChains = kScanChains;

// The operands of one step of neighbouring channels.
template <class T>
struct Step {
  const T* a;  // null: 1
  const T* b;
  T* h;
  const T* before;  // null: 0
  T* da;            // null: not wanted
};

// Step k of block `block`, in the order of the scan, from channel `column` of entry o.
template <class T>
EDDY_INLINE Step<T> step_at(const ScanArgs& args, std::int64_t o, std::int64_t k, std::int64_t column) {
  const std::int64_t t = args.reverse ? args.time - 1 - k : k;
  const std::int64_t at = (o * args.time + t) * args.inner + column;
  Step<T> step = {nullptr, static_cast<const T*>(args.b) + at, static_cast<T*>(args.h) + at, nullptr,
                  nullptr};
  // In reverse the factor is that of the step after, and after the last one there is nothing to multiply.
  if (args.a != nullptr && !(args.reverse && k == 0))
    step.a = static_cast<const T*>(args.a) + at + (args.reverse ? args.inner : 0);
  if (args.da == nullptr) return step;
  step.da = static_cast<T*>(args.da) + at;
  if (t > 0)
    step.before = static_cast<const T*>(args.before) + at - args.inner;
  else if (args.initial != nullptr)
    step.before = static_cast<const T*>(args.initial) + o * args.inner + column;
  return step;
}

// The pair of a block, and after `join_blocks` in place of a the h before it.
template <class T>
EDDY_INLINE T* carry_at(const ScanArgs& args, std::int64_t o, std::int64_t block, int which,
                        std::int64_t column) {
  return static_cast<T*>(args.carries) + ((o * args.blocks + block) * 2 + which) * args.inner + column;
}

// h before the first step of a block.
template <class T>
EDDY_INLINE T start_of(const ScanArgs& args, std::int64_t o, std::int64_t block, std::int64_t column) {
  if (args.blocks > 1) return *carry_at<T>(args, o, block, 0, column);
  const bool given = args.initial != nullptr && !args.reverse;
  return given ? static_cast<const T*>(args.initial)[o * args.inner + column] : T(0);
}

EDDY_INLINE std::int64_t steps_of(const ScanArgs& args, std::int64_t block) {
  const std::int64_t rest = args.time - block * args.block;
  return rest < args.block ? rest : args.block;
}

// Channels side by side: the pair of a block.
template <class T>
EDDY_INLINE void pair_of_lanes(const ScanArgs& args, std::int64_t o, std::int64_t block, std::int64_t column,
                               std::int64_t n) {
  T a[kLanes], b[kLanes];
  for (std::int64_t j = 0; j < n; ++j) a[j] = T(1);
  for (std::int64_t j = 0; j < n; ++j) b[j] = T(0);
  const std::int64_t begin = block * args.block, end = begin + args.block;
  for (std::int64_t k = begin; k < end; ++k) {
    const Step<T> step = step_at<T>(args, o, k, column);
    if (step.a == nullptr) {
      for (std::int64_t j = 0; j < n; ++j) b[j] += step.b[j];
    } else {
      for (std::int64_t j = 0; j < n; ++j) {
        a[j] *= step.a[j];
        b[j] = step.a[j] * b[j] + step.b[j];
      }
    }
  }
  T *const to_a = carry_at<T>(args, o, block, 0, column), *const to_b =
                                                              carry_at<T>(args, o, block, 1, column);
  for (std::int64_t j = 0; j < n; ++j) to_a[j] = a[j];
  for (std::int64_t j = 0; j < n; ++j) to_b[j] = b[j];
}

// The same: its steps.
template <class T>
EDDY_INLINE void steps_of_lanes(const ScanArgs& args, std::int64_t o, std::int64_t block, std::int64_t column,
                                std::int64_t n) {
  T state[kLanes];
  for (std::int64_t j = 0; j < n; ++j) state[j] = start_of<T>(args, o, block, column + j);
  const std::int64_t begin = block * args.block, end = begin + steps_of(args, block);
  for (std::int64_t k = begin; k < end; ++k) {
    const Step<T> step = step_at<T>(args, o, k, column);
    if (step.a == nullptr) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) {
        state[j] += step.b[j];
        step.h[j] = state[j];
      }
    } else {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) {
        state[j] = step.a[j] * state[j] + step.b[j];
        step.h[j] = state[j];
      }
    }
    if (step.da == nullptr) continue;
    if (step.before == nullptr)
      for (std::int64_t j = 0; j < n; ++j) step.da[j] = T(0);
    else
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) step.da[j] = state[j] * step.before[j];
  }
}

// Chains that lie apart. Chain i is block i % blocks of channel i / blocks.
struct Chain {
  std::int64_t o, column, block;
};
EDDY_INLINE Chain chain_at(const ScanArgs& args, std::int64_t i) {
  const std::int64_t channel = i / args.blocks;
  return {channel / args.inner, channel % args.inner, i % args.blocks};
}

// Calls visit(lane, step) for all steps of all chains but steps `from` to `to` of each block.
template <class T, class Visit>
EDDY_INLINE void for_other_steps(const ScanArgs& args, const Chain* chains, std::int64_t n, std::int64_t from,
                                 std::int64_t to, Visit visit) {
  for (std::int64_t lane = 0; lane < n; ++lane)
    for (std::int64_t k = from; k < to && k < steps_of(args, chains[lane].block); ++k)
      visit(lane, step_at<T>(args, chains[lane].o, chains[lane].block * args.block + k, chains[lane].column));
}

// The steps that all of kChains chains have, but the first and the last, which may be the ends of time: visit(a, b,
// lane, at) with the place of b and, in reverse, a one step further. `offsets` are those of the first steps.
template <class T, class Visit, class Store>
EDDY_INLINE void for_inner_steps(const ScanArgs& args, const std::int64_t* offsets, std::int64_t steps,
                                 Visit visit, Store store) {
  const std::int64_t move = args.reverse ? -args.inner : args.inner, ahead = args.reverse ? args.inner : 0;
  const T* const b = static_cast<const T*>(args.b);
  const T* const a = args.a == nullptr ? nullptr : static_cast<const T*>(args.a) + ahead;
  std::int64_t at[kChains];
  for (std::int64_t lane = 0; lane < kChains; ++lane) at[lane] = offsets[lane] + move;
  const auto go = [&](auto factor) {
    for (std::int64_t k = 1; k + 1 < steps; ++k) {
#pragma GCC unroll 4
      for (std::int64_t lane = 0; lane < kChains; ++lane)
        visit(lane, factor(at[lane]), b[at[lane]], at[lane]);
#pragma GCC unroll 4
      for (std::int64_t lane = 0; lane < kChains; ++lane) {
        store(lane, at[lane]);
        at[lane] += move;
      }
    }
  };
  if (a == nullptr)
    go([](std::int64_t) { return T(1); });
  else
    go([a](std::int64_t place) { return a[place]; });
}

// What a group of chains has in common.
struct ChainGroup {
  std::int64_t offsets[kChains];  // of the operands of the first steps
  std::int64_t steps;             // of all chains
};
template <class T>
EDDY_INLINE ChainGroup chain_group(const ScanArgs& args, const Chain* chains, std::int64_t n) {
  ChainGroup group = {{}, args.block};
  for (std::int64_t lane = 0; lane < n; ++lane) {
    const Chain& chain = chains[lane];
    const std::int64_t count = steps_of(args, chain.block);
    group.offsets[lane] =
        step_at<T>(args, chain.o, chain.block * args.block, chain.column).b - static_cast<const T*>(args.b);
    group.steps = count < group.steps ? count : group.steps;
  }
  if (n < kChains) group.steps = 0;  // a part of a group has no lanes to fill
  return group;
}

template <class T>
EDDY_INLINE void pairs_of_chains(const ScanArgs& args, const Chain* chains, std::int64_t n) {
  T a[kChains], b[kChains];
  for (std::int64_t lane = 0; lane < kChains; ++lane) a[lane] = T(1);
  for (std::int64_t lane = 0; lane < kChains; ++lane) b[lane] = T(0);
  const auto visit = [&](std::int64_t lane, const Step<T>& step) {
    const T factor = step.a == nullptr ? T(1) : *step.a;
    a[lane] *= factor;
    b[lane] = factor * b[lane] + *step.b;
  };
  const ChainGroup group = chain_group<T>(args, chains, n);
  for_other_steps<T>(args, chains, n, 0, 1, visit);
  for_inner_steps<T>(
      args, group.offsets, group.steps,
      [&](std::int64_t lane, T factor, T term, std::int64_t) {
        a[lane] *= factor;
        b[lane] = factor * b[lane] + term;
      },
      [](std::int64_t, std::int64_t) {});
  for_other_steps<T>(args, chains, n, group.steps > 2 ? group.steps - 1 : 1, args.block, visit);
  for (std::int64_t lane = 0; lane < n; ++lane) {
    *carry_at<T>(args, chains[lane].o, chains[lane].block, 0, chains[lane].column) = a[lane];
    *carry_at<T>(args, chains[lane].o, chains[lane].block, 1, chains[lane].column) = b[lane];
  }
}

template <class T>
EDDY_INLINE void steps_of_chains(const ScanArgs& args, const Chain* chains, std::int64_t n) {
  T state[kChains] = {};
  for (std::int64_t lane = 0; lane < n; ++lane)
    state[lane] = start_of<T>(args, chains[lane].o, chains[lane].block, chains[lane].column);
  const auto visit = [&](std::int64_t lane, const Step<T>& step) {
    const T factor = step.a == nullptr ? T(1) : *step.a;
    state[lane] = factor * state[lane] + *step.b;
    *step.h = state[lane];
    if (step.da != nullptr) *step.da = step.before == nullptr ? T(0) : state[lane] * *step.before;
  };
  const ChainGroup group = chain_group<T>(args, chains, n);
  T *const h = static_cast<T*>(args.h), *const da = static_cast<T*>(args.da);
  const T* const before = static_cast<const T*>(args.before);
  for_other_steps<T>(args, chains, n, 0, 1, visit);
  T products[kChains];
  if (da == nullptr)
    for_inner_steps<T>(
        args, group.offsets, group.steps,
        [&](std::int64_t lane, T factor, T term, std::int64_t) { state[lane] = factor * state[lane] + term; },
        [&](std::int64_t lane, std::int64_t at) { h[at] = state[lane]; });
  else
    for_inner_steps<T>(
        args, group.offsets, group.steps,
        [&](std::int64_t lane, T factor, T term, std::int64_t at) {
          state[lane] = factor * state[lane] + term;
          products[lane] = state[lane] * before[at - args.inner];
        },
        [&](std::int64_t lane, std::int64_t at) {
          h[at] = state[lane];
          da[at] = products[lane];
        });
  for_other_steps<T>(args, chains, n, group.steps > 2 ? group.steps - 1 : 1, args.block, visit);
}

// From the pairs of all blocks the h before each. A product that overflowed does not count where h is 0.
template <class T>
EDDY_INLINE void join_blocks(const ScanArgs& args) {
  parallel_for_rows(args.outer, args.blocks * args.inner, [=, &args](std::int64_t o) {
    const bool given = args.initial != nullptr && !args.reverse;
    const T* const first = given ? static_cast<const T*>(args.initial) + o * args.inner : nullptr;
    for (std::int64_t i = 0; i < args.inner; ++i) {
      T state = first == nullptr ? T(0) : first[i];
      for (std::int64_t block = 0; block < args.blocks; ++block) {
        T* const a = carry_at<T>(args, o, block, 0, i);
        const T factor = *a;
        *a = state;
        if (block + 1 == args.blocks) break;
        state = (state == T(0) ? T(0) : factor * state) + *carry_at<T>(args, o, block, 1, i);
      }
    }
  });
}

// Calls wide(o, block, column, count) or narrow(chains, count) for all units of work.
template <class Wide, class Narrow>
EDDY_INLINE void for_units(const ScanArgs& args, Wide wide, Narrow narrow) {
  if (args.inner >= kScanNarrow) {
    const std::int64_t strips = (args.inner + kLanes - 1) / kLanes;
    parallel_for_rows(args.outer * args.blocks * strips, args.block * kLanes, [=, &args](std::int64_t unit) {
      const std::int64_t line = unit / strips, column = unit % strips * kLanes;
      const std::int64_t rest = args.inner - column;
      wide(line / args.blocks, line % args.blocks, column, rest < kLanes ? rest : kLanes);
    });
    return;
  }
  const std::int64_t chains = args.outer * args.inner * args.blocks;
  parallel_for_rows((chains + kChains - 1) / kChains, args.block * kChains, [=, &args](std::int64_t unit) {
    Chain group[kChains];
    const std::int64_t rest = chains - unit * kChains, n = rest < kChains ? rest : kChains;
    for (std::int64_t lane = 0; lane < n; ++lane) group[lane] = chain_at(args, unit * kChains + lane);
    narrow(group, n);
  });
}

template <class T>
void scan(const ScanArgs& args) {
  if (args.blocks > 1) {
    for_units(
        args,
        [&args](std::int64_t o, std::int64_t block, std::int64_t column, std::int64_t n) {
          if (block + 1 < args.blocks) pair_of_lanes<T>(args, o, block, column, n);
        },
        [&args](const Chain* chains, std::int64_t n) { pairs_of_chains<T>(args, chains, n); });
    join_blocks<T>(args);
  }
  for_units(
      args,
      [&args](std::int64_t o, std::int64_t block, std::int64_t column, std::int64_t n) {
        steps_of_lanes<T>(args, o, block, column, n);
      },
      [&args](const Chain* chains, std::int64_t n) { steps_of_chains<T>(args, chains, n); });
}

}  // namespace

EDDY_CPU_KERNEL(scan, scan)

}  // namespace eddy::EDDY_ISA
