#include "tessera/tensor/kernels/order.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/elements.h"
#include "tessera/tensor/kernels/cpu/first_extreme.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/sort_key.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

using Entry = ArgsortKernel::Entry;

// Elements being sorted, as a pair of key and position. Equal elements keep their order.
struct WideEntries {
  using Pair = Entry;
  static Pair pair(std::uint64_t key, std::int64_t position) { return {key, position}; }
  static std::uint64_t key(const Pair& pair) { return pair.key; }
  static std::int64_t position(const Pair& pair) { return pair.position; }
  static Pair last() { return {~std::uint64_t{0}, std::numeric_limits<std::int64_t>::max()}; }
  static bool before(const Pair& a, const Pair& b) {
    return a.key != b.key ? a.key < b.key : a.position < b.position;
  }
};

// Keys and positions of 32 bits, as one number.
struct PackedEntries {
  using Pair = std::uint64_t;
  static Pair pair(std::uint32_t key, std::int64_t position) {
    return std::uint64_t{key} << 32 | static_cast<std::uint64_t>(position);
  }
  static std::uint32_t key(Pair pair) { return static_cast<std::uint32_t>(pair >> 32); }
  static std::int64_t position(Pair pair) { return static_cast<std::int64_t>(pair & 0xffffffffu); }
  static Pair last() { return ~std::uint64_t{0}; }
  static bool before(Pair a, Pair b) { return a < b; }
};

// The first k of a line in sorted order. Keys are read in order. If k is small, each that comes before
// the k-th of all before it is inserted. Else they are collected, and when twice as many are there,
// the first k of them are chosen. C is the type that keys are made of.
template <class C, class Entries>
class FirstOfLine {
  using Pair = typename Entries::Pair;
  using Key = decltype(sort_key(C{}));

 public:
  FirstOfLine(const ArgsortKernel::Args& a, Pair* pairs)
      : x_(a.x),
        k_(a.y.shape.back()),
        room_(std::min(a.room(), std::max(2 * k_, kLeastRoom))),
        descending_(a.descending),
        pairs_(pairs) {}

  const Pair* sorted(std::int64_t offset) {
    constexpr std::int64_t kLength = 512;
    const int last = x_.shape.ndim() - 1;
    const std::int64_t n = x_.shape[last], step = x_.strides[last];
    C buffer[kLength];
    Key keys[kLength];
    found_ = 0;
    bounded_ = false;
    const bool few = k_ <= kFew;
    if (few) std::fill_n(pairs_, k_, Entries::last());
    const Key flip = descending_ ? static_cast<Key>(~Key{0}) : Key{0};
    for (std::int64_t at = 0; at < n && k_ > 0; at += kLength) {
      const std::int64_t count = std::min(kLength, n - at);
      cpu::load_run(x_.dtype, cpu::advance(x_.data, x_.dtype, offset + at * step), step, count,
                    buffer);
      for (std::int64_t i = 0; i < count; ++i) keys[i] = sort_key(buffer[i]) ^ flip;
      few ? insert_each(keys, at, count) : collect(keys, at, count);
    }
    if (few) return pairs_;
    if (found_ > k_) std::nth_element(pairs_, pairs_ + k_, pairs_ + found_, Entries::before);
    std::sort(pairs_, pairs_ + k_, Entries::before);
    return pairs_;
  }

 private:
  static constexpr std::int64_t kLeastRoom = 8;
  // So many are kept in order as they come. More of them take longer than a choice among many.
  static constexpr std::int64_t kFew = 8;

  static constexpr std::int64_t kBlock = 16;

  // Bit i is set if keys[i] < bound_, i < kBlock.
  unsigned below_bound(const Key* keys) const {
    using Vector [[gnu::vector_size(32)]] = Key;
    constexpr int kWidth = 32 / static_cast<int>(sizeof(Key));
    unsigned below = 0;
    for (int at = 0; at < kBlock; at += kWidth) {
      Vector some;
      std::memcpy(&some, keys + at, sizeof(some));
      const auto mask = some < bound_;
      const int bits = sizeof(Key) == 4 ? _mm256_movemask_ps(reinterpret_cast<__m256>(mask))
                                        : _mm256_movemask_pd(reinterpret_cast<__m256d>(mask));
      below |= static_cast<unsigned>(bits) << at;
    }
    return below;
  }
  // Calls take(i) for the keys that can be among the first k.
  template <class Take>
  void for_each_candidate(const Key* keys, std::int64_t n, const Take& take) {
    const auto take_one = [&](std::int64_t i) {
      if (!bounded_ || keys[i] < bound_) take(i);
    };
    std::int64_t at = 0;
    for (; at + kBlock <= n; at += kBlock) {
      if (bounded_) {
        for (unsigned left = below_bound(keys + at); left != 0; left &= left - 1)
          take_one(at + std::countr_zero(left));
      } else {
        for (std::int64_t i = at; i < at + kBlock; ++i) take_one(i);
      }
    }
    for (; at < n; ++at) take_one(at);
  }
  void collect(const Key* keys, std::int64_t first, std::int64_t n) {
    for_each_candidate(keys, n, [&](std::int64_t i) {
      pairs_[found_++] = Entries::pair(keys[i], first + i);
      if (found_ == room_) choose();
    });
  }
  // Without branches: where a pair belongs is not predictable.
  void insert_each(const Key* keys, std::int64_t first, std::int64_t n) {
    for_each_candidate(keys, n, [&](std::int64_t i) {
      Pair moved = Entries::pair(keys[i], first + i);
      for (std::int64_t place = 0; place < k_; ++place) {
        const Pair here = pairs_[place];
        const bool earlier = Entries::before(moved, here);
        pairs_[place] = earlier ? moved : here;
        moved = earlier ? here : moved;
      }
      bounded_ = ++found_ >= k_;
      bound_ = Entries::key(pairs_[k_ - 1]);
    });
  }
  void choose() {
    if (k_ == room_) return;  // all elements are sorted
    std::nth_element(pairs_, pairs_ + (k_ - 1), pairs_ + found_, Entries::before);
    bound_ = Entries::key(pairs_[k_ - 1]);
    bounded_ = true;
    found_ = k_;
  }

  const ConstView& x_;
  std::int64_t k_;
  std::int64_t room_;
  bool descending_;
  Pair* pairs_;
  std::int64_t found_ = 0;
  Key bound_{};  // an element with this key, or a later one, comes after k others
  bool bounded_ = false;
};

template <class C, class Entries>
void argsort(const ArgsortKernel::Args& a, Workspace scratch) {
  using Pair = typename Entries::Pair;
  const int last = a.x.shape.ndim() - 1;
  const std::int64_t k = a.y.shape[last], step = a.y.strides[last];
  const std::int64_t groups = a.groups(), lines = a.lines();
  const auto walk =
      cpu::make_traversal(cpu::leading(a.x.shape, last), cpu::leading(a.x.strides, last),
                          cpu::leading(a.y.strides, last));
  std::int64_t* y = a.y.as<std::int64_t>();
  cpu::parallel_for(groups, cpu::threads_for(lines * a.extent()), [&](std::int64_t g) {
    FirstOfLine<C, Entries> first(a, static_cast<Pair*>(scratch.data) + g * a.room());
    cpu::walk_lines(walk, lines * g / groups, lines * (g + 1) / groups, [&](const auto& offsets) {
      const Pair* pairs = first.sorted(offsets[0]);
      for (std::int64_t i = 0; i < k; ++i) y[offsets[1] + i * step] = Entries::position(pairs[i]);
    });
  });
}

}  // namespace

void ArgsortKernel::cpu(const Args& a, Workspace scratch) {
  const DType dtype = a.x.dtype;
  const bool narrow = a.extent() <= std::int64_t{1} << 32;
  if (is_floating(dtype) && dtype != DType::kF64 && narrow)
    return argsort<float, PackedEntries>(a, scratch);
  if (is_floating(dtype)) return argsort<double, WideEntries>(a, scratch);
  argsort<std::int64_t, WideEntries>(a, scratch);
}

namespace {

// A part of a line stays in the first cache while its extreme is looked for.
template <class C, bool largest>
std::int64_t find(const ConstView& x, std::int64_t offset) {
  constexpr std::int64_t kLength = 1024;
  const int last = x.shape.ndim() - 1;
  const std::int64_t n = x.shape[last], step = x.strides[last];
  const cpu::Elements<C> elements(x);
  C buffer[kLength];
  cpu::FirstExtreme<C, largest> extreme;
  for (std::int64_t at = 0; at < n; at += kLength) {
    const std::int64_t count = std::min(kLength, n - at);
    const bool open =
        elements.with_run(offset + at * step, step, count, buffer,
                          [&](const auto* values) { return extreme.add(values, count, at); });
    if (!open) break;
  }
  return extreme.position();
}

// The same for `width` lines that are adjacent in memory.
constexpr std::int64_t kColumns = 64;
template <class C, bool largest>
void find_columns(const ConstView& x, std::int64_t offset, std::int64_t width, std::int64_t* out) {
  // Positions as wide as the elements, so that the compiler vectorises the choice, in blocks.
  using Position = std::conditional_t<sizeof(C) == 4, std::int32_t, std::int64_t>;
  constexpr std::int64_t kBlock = 1 << 30;
  const int last = x.shape.ndim() - 1;
  const std::int64_t n = x.shape[last], step = x.strides[last];
  C row[kColumns], best[kColumns];
  Position at[kColumns];
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    std::fill_n(at, width, Position{-1});
    for (std::int64_t i = begin; i < std::min(n, begin + kBlock); ++i) {
      cpu::load_run(x.dtype, cpu::advance(x.data, x.dtype, offset + i * step), 1, width, row);
      if (i == 0) {
        std::copy_n(row, width, best);
        std::fill_n(at, width, Position{0});
        continue;
      }
      const auto here = static_cast<Position>(i - begin);
      for (std::int64_t c = 0; c < width; ++c) {
        const bool first_nan = (row[c] != row[c]) & (best[c] == best[c]);
        const bool beyond = largest ? row[c] > best[c] : row[c] < best[c];
        const bool wins = first_nan | beyond;
        best[c] = wins ? row[c] : best[c];
        at[c] = wins ? here : at[c];
      }
    }
    for (std::int64_t c = 0; c < width; ++c) {
      if (at[c] >= 0) out[c] = begin + at[c];
    }
  }
}

template <class C>
void find_lines(const ArgExtremeKernel::Args& a) {
  const int last = a.x.shape.ndim() - 1;
  const std::int64_t n = a.x.shape[last];
  const auto lines = cpu::make_traversal(cpu::leading(a.x.shape, last),
                                         cpu::leading(a.x.strides, last), a.y.strides);
  std::int64_t* y = a.y.as<std::int64_t>();
  constexpr std::int64_t kFewest = 4;  // lines side by side that are faster row by row
  const bool columns = lines.strides[0][lines.ndim - 1] == 1 && a.x.strides[last] != 1 &&
                       lines.shape[lines.ndim - 1] >= kFewest;
  if (!columns) {
    return cpu::parallel_lines(lines, n, [&](const auto& offsets) {
      y[offsets[1]] = a.largest ? find<C, true>(a.x, offsets[0]) : find<C, false>(a.x, offsets[0]);
    });
  }
  const std::int64_t total = lines.numel(), groups = (total + kColumns - 1) / kColumns;
  cpu::parallel_for(groups, cpu::threads_for(total * n), [&](std::int64_t g) {
    cpu::walk(lines, g * kColumns, std::min(total, (g + 1) * kColumns),
              [&](const auto& offsets, const auto& steps, std::int64_t width) {
                std::int64_t found[kColumns];
                a.largest ? find_columns<C, true>(a.x, offsets[0], width, found)
                          : find_columns<C, false>(a.x, offsets[0], width, found);
                for (std::int64_t c = 0; c < width; ++c) y[offsets[1] + c * steps[1]] = found[c];
              });
  });
}

}  // namespace

void ArgExtremeKernel::cpu(const Args& a, Workspace) {
  with_compute_type(a.x.dtype, [&]<class C>() { find_lines<C>(a); });
}

}  // namespace tessera
