#include "tessera/tensor/kernels/indexing.h"

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/indices.h"

namespace tessera {
namespace {

// Elements arrive at one destination in the order of the indices along `dim`. So the other dims are
// split into pieces, which share no destination, and a piece goes through all indices. The size of
// a piece depends on shapes alone.
constexpr std::int64_t kLeastPiece = 256;

template <ScatterMode kMode, class T>
void put(T& to, const T& from) {
  if constexpr (kMode == ScatterMode::kAdd) {
    to = static_cast<T>(to + from);  // integers wrap around: -fwrapv
  } else if constexpr (kMode == ScatterMode::kMultiply) {
    to = static_cast<T>(to * from);
  } else if constexpr (kMode == ScatterMode::kMaximum) {
    to = from > to || from != from ? from : to;
  } else if constexpr (kMode == ScatterMode::kMinimum) {
    to = from < to || from != from ? from : to;
  } else {
    to = from;
  }
}

template <class T, ScatterMode kMode>
struct Scatter {
  const ScatterKernel::Args& a;
  const T* src = a.src.as<T>();
  T* y = a.y.as<T>();
  cpu::Traversal<3> others = without_dim();
  std::int64_t count = a.walk.shape[a.walk.dim];
  std::int64_t index_step = a.walk.index[a.walk.dim];
  std::int64_t src_step = a.walk.other[a.walk.dim];

  cpu::Traversal<3> without_dim() const {
    auto t = cpu::make_traversal(a.walk.shape, a.walk.indexed, a.walk.index, a.walk.other);
    const auto drop = [&](auto& list) {
      std::copy(list.begin() + a.walk.dim + 1, list.begin() + t.ndim, list.begin() + a.walk.dim);
    };
    drop(t.shape);
    for (auto& strides : t.strides) drop(strides);
    if (--t.ndim == 0) {  // one line of one element
      t.ndim = 1;
      t.shape[0] = 1;
      for (auto& strides : t.strides) strides[0] = 0;
    }
    return t;
  }

  void run() const {
    const std::int64_t total = others.numel();
    const std::int64_t piece =
        std::max(kLeastPiece, cpu::kPiece / std::max<std::int64_t>(1, count));
    const std::int64_t pieces = (total + piece - 1) / piece;
    const int last = others.ndim - 1;
    const bool rows = others.strides[1][last] == 0 && others.shape[last] > 1;
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (std::int64_t p = 0; p < pieces; ++p) {
      const std::int64_t begin = p * piece, end = std::min(total, begin + piece);
      rows ? put_rows(begin, end) : put_lines(begin, end);
    }
  }

  // Adjacent elements of the last dim share an index and move together.
  void put_rows(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t j = 0; j < count; ++j) {
      cpu::walk(others, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t n) {
        const std::int64_t index =
            cpu::load_from_front(a.index, offsets[1] + j * index_step, a.walk);
        if (index == a.skip) return;
        T* to = y + offsets[0] + index * a.walk.stride;
        const T* from = src + offsets[2] + j * src_step;
        if (steps[0] == 1 && steps[2] == 1) {
#pragma GCC ivdep
          for (std::int64_t i = 0; i < n; ++i) put<kMode>(to[i], from[i]);
        } else {
          for (std::int64_t i = 0; i < n; ++i) put<kMode>(to[i * steps[0]], from[i * steps[2]]);
        }
      });
    }
  }

  // Every element has an index of its own.
  void put_lines(std::int64_t begin, std::int64_t end) const {
    cpu::walk(others, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        put_line(y + offsets[0] + i * steps[0], offsets[1] + i * steps[1],
                 src + offsets[2] + i * steps[2]);
      }
    });
  }
  void put_line(T* to, std::int64_t index_offset, const T* from) const {
    std::int64_t indices[cpu::kIndexRun];
    for (std::int64_t at = 0; at < count; at += cpu::kIndexRun) {
      const std::int64_t n = std::min(cpu::kIndexRun, count - at);
      cpu::load_indices(a.index, index_offset + at * index_step, index_step, n, indices);
      cpu::count_from_front(a.walk, n, indices);
      for (std::int64_t j = 0; j < n; ++j) {
        if (indices[j] != a.skip)
          put<kMode>(to[indices[j] * a.walk.stride], from[(at + j) * src_step]);
      }
    }
  }
};

template <ScatterMode kMode>
void fold(const ScatterKernel::Args& a) {
  switch (a.y.dtype) {
    case DType::kF32:
      return Scatter<float, kMode>{a}.run();
    case DType::kF64:
      return Scatter<double, kMode>{a}.run();
    case DType::kI64:
      return Scatter<std::int64_t, kMode>{a}.run();
    case DType::kI32:
      return Scatter<std::int32_t, kMode>{a}.run();
    case DType::kU8:
      return Scatter<std::uint8_t, kMode>{a}.run();
    case DType::kBF16:
    case DType::kF16:
    case DType::kBool:
      return;
  }
}

}  // namespace

void ScatterKernel::cpu(const Args& a, Workspace) {
  if (a.walk.shape.numel() == 0) return;
  cpu::check_indices(a.index, {.extent = a.walk.extent, .least = a.walk.least}, a.walk.named_dim,
                     a.bad_index);
  switch (a.mode) {
    case ScatterMode::kAssign:
      return cpu::with_bits(a.y.dtype,
                            [&]<class B>() { Scatter<B, ScatterMode::kAssign>{a}.run(); });
    case ScatterMode::kAdd:
      return fold<ScatterMode::kAdd>(a);
    case ScatterMode::kMultiply:
      return fold<ScatterMode::kMultiply>(a);
    case ScatterMode::kMaximum:
      return fold<ScatterMode::kMaximum>(a);
    case ScatterMode::kMinimum:
      return fold<ScatterMode::kMinimum>(a);
  }
}

}  // namespace tessera
