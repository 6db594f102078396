#include "tessera/tensor/kernels/reduce.h"

#include <span>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlock = ReduceKernel::kBlock;
// Sums that are next to each other in memory and computed together when the elements of one sum are
// not.
constexpr std::int64_t kColumns = 64;

// Acc adds inside a block, Total adds blocks.
template <class T, class AccType, class TotalType, bool square>
struct Sum {
  using Value = T;
  using Acc = AccType;
  using Total = TotalType;
  static Acc term(T x) {
    if constexpr (square) {
      return static_cast<Acc>(x) * static_cast<Acc>(x);
    } else {
      return static_cast<Acc>(x);
    }
  }
};

// Where the elements of the sums lie.
struct Geometry {
  cpu::Traversal<1> kept;
  cpu::Traversal<1> reduced;
  std::int64_t outputs = 0;
  std::int64_t count = 0;
  std::int64_t blocks = 0;
  bool columns = false;
};

Geometry geometry(const ReduceKernel::Args& a) {
  const int kept = a.kept_dims, ndim = a.x.shape.ndim();
  Geometry g;
  const auto part = [](const Shape& s, int begin, int end) {
    return std::span(s.begin() + begin, static_cast<std::size_t>(end - begin));
  };
  g.kept = cpu::make_traversal(part(a.x.shape, 0, kept), part(a.x.strides, 0, kept));
  g.reduced = cpu::make_traversal(part(a.x.shape, kept, ndim), part(a.x.strides, kept, ndim));
  g.outputs = a.outputs();
  g.count = a.count();
  g.blocks = a.blocks();
  const auto inner = [](const cpu::Traversal<1>& t) { return t.strides[0][t.ndim - 1]; };
  g.columns = g.reduced.ndim == 1 && inner(g.kept) == 1 && inner(g.reduced) != 1;
  return g;
}

// The sum of elements [begin, end) of the sum that starts at x.
template <class S>
typename S::Acc block_sum(const Geometry& g, const typename S::Value* x, std::int64_t begin,
                          std::int64_t end) {
  using T = typename S::Value;
  const std::int64_t n = end - begin;
  if (g.reduced.ndim == 1) {
    const std::int64_t stride = g.reduced.strides[0][0];
    const T* from = x + begin * stride;
    if (stride == 1) {
      return cpu::lane_sum<typename S::Acc>(n, [=](std::int64_t i) { return S::term(from[i]); });
    }
    return cpu::lane_sum<typename S::Acc>(
        n, [=](std::int64_t i) { return S::term(from[i * stride]); });
  }
  T gathered[kBlock];
  T* next = gathered;
  cpu::walk(g.reduced, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) *next++ = x[offsets[0] + i * steps[0]];
  });
  return cpu::lane_sum<typename S::Acc>(n, [&](std::int64_t i) { return S::term(gathered[i]); });
}

// The same for `width` sums that start at x, x + 1, ...: rows of them are added, lane by lane as
// above.
template <class S>
void column_sums(const typename S::Value* x, std::int64_t stride, std::int64_t rows,
                 std::int64_t width, typename S::Total* out) {
  typename S::Acc lanes[cpu::kLanes][kColumns] = {};
  for (std::int64_t r = 0; r < rows; ++r) {
    const typename S::Value* from = x + r * stride;
    typename S::Acc* lane = lanes[r % cpu::kLanes];
    for (std::int64_t c = 0; c < width; ++c) lane[c] += S::term(from[c]);
  }
  for (int half = cpu::kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      for (std::int64_t c = 0; c < width; ++c) lanes[lane][c] += lanes[lane + half][c];
    }
  }
  for (std::int64_t c = 0; c < width; ++c) out[c] = lanes[0][c];
}

// partial[block * outputs + output], in pieces of one block and up to kColumns sums.
template <class S>
void all_blocks(const Geometry& g, const typename S::Value* x, typename S::Total* partial) {
  const std::int64_t groups = (g.outputs + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static) if (g.outputs * g.count > cpu::kPiece)
  for (std::int64_t piece = 0; piece < groups * g.blocks; ++piece) {
    const std::int64_t block = piece / groups, group = piece % groups;
    const std::int64_t begin = block * kBlock, end = std::min(g.count, begin + kBlock);
    const std::int64_t first = group * kColumns, last = std::min(g.outputs, first + kColumns);
    typename S::Total* out = partial + block * g.outputs + first;
    cpu::walk(g.kept, first, last, [&](const auto& offsets, const auto& steps, std::int64_t width) {
      const typename S::Value* from = x + offsets[0];
      if (g.columns) {
        const std::int64_t stride = g.reduced.strides[0][0];
        column_sums<S>(from + begin * stride, stride, end - begin, width, out);
      } else {
        for (std::int64_t i = 0; i < width; ++i)
          out[i] = block_sum<S>(g, from + i * steps[0], begin, end);
      }
      out += width;
    });
  }
}

template <class S, class Result>
void reduce(const ReduceKernel::Args& a, Workspace scratch) {
  static_assert(sizeof(typename S::Total) == 8);
  const Geometry g = geometry(a);
  auto* partial = static_cast<typename S::Total*>(scratch.data);
  all_blocks<S>(g, a.x.as<typename S::Value>(), partial);
  Result* y = a.y.as<Result>();
#pragma omp parallel for schedule(static) if (g.outputs * g.blocks > cpu::kPiece)
  for (std::int64_t o = 0; o < g.outputs; ++o) {
    typename S::Total total = 0;
    for (std::int64_t b = 0; b < g.blocks; ++b) total += partial[b * g.outputs + o];
    if constexpr (!std::is_integral_v<Result>) {
      if (a.op == ReduceOp::kMean) total /= static_cast<double>(g.count);
    }
    y[o] = static_cast<Result>(total);
  }
}

}  // namespace

void ReduceKernel::cpu(const Args& a, Workspace scratch) {
  const bool squares = a.op == ReduceOp::kSumOfSquares;
  switch (a.x.dtype) {
    case DType::kF32:
      return squares ? reduce<Sum<float, double, double, true>, double>(a, scratch)
                     : reduce<Sum<float, float, double, false>, float>(a, scratch);
    case DType::kF64:
      return squares ? reduce<Sum<double, double, double, true>, double>(a, scratch)
                     : reduce<Sum<double, double, double, false>, double>(a, scratch);
    case DType::kI64:
      return reduce<Sum<std::int64_t, std::int64_t, std::int64_t, false>, std::int64_t>(a, scratch);
    case DType::kU8:
      return reduce<Sum<std::uint8_t, std::int64_t, std::int64_t, false>, std::int64_t>(a, scratch);
    case DType::kI32:
    case DType::kBool:
    case DType::kBF16:
    case DType::kF16:
      return;
  }
}

}  // namespace tessera
