#include "tessera/tensor/kernels/indexing.h"

#include <type_traits>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/indices.h"

namespace tessera {
namespace {

// Elements arrive at one destination in the order of the indices along `dim`. So the other dims are
// split into pieces, which share no destination, and a piece goes through all indices. The size of
// a piece depends on shapes alone.
constexpr std::int64_t kLeastPiece = 256;

template <class T>
void put(T& to, const T& from, bool add) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    to = add ? static_cast<T>(static_cast<U>(to) + static_cast<U>(from)) : from;
  } else if constexpr (std::is_floating_point_v<T>) {
    to = add ? to + from : from;
  } else {
    to = from;
  }
}

template <class T>
struct Scatter {
  const ScatterKernel::Args& a;
  const T* src = a.src.as<T>();
  T* y = a.y.as<T>();
  bool add = a.mode == ScatterMode::kAdd;
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
        const std::int64_t index = cpu::load_index(a.index, offsets[1] + j * index_step);
        if (index == a.skip) return;
        T* to = y + offsets[0] + index * a.walk.stride;
        const T* from = src + offsets[2] + j * src_step;
        if (steps[0] == 1 && steps[2] == 1) {
#pragma GCC ivdep
          for (std::int64_t i = 0; i < n; ++i) put(to[i], from[i], add);
        } else {
          for (std::int64_t i = 0; i < n; ++i) put(to[i * steps[0]], from[i * steps[2]], add);
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
      for (std::int64_t j = 0; j < n; ++j) {
        if (indices[j] != a.skip)
          put(to[indices[j] * a.walk.stride], from[(at + j) * src_step], add);
      }
    }
  }
};

template <class T>
void scatter(const ScatterKernel::Args& a) {
  Scatter<T>{a}.run();
}

void scatter_add(const ScatterKernel::Args& a) {
  switch (a.y.dtype) {
    case DType::kF32:
      return scatter<float>(a);
    case DType::kF64:
      return scatter<double>(a);
    case DType::kI64:
      return scatter<std::int64_t>(a);
    case DType::kI32:
      return scatter<std::int32_t>(a);
    case DType::kU8:
      return scatter<std::uint8_t>(a);
    case DType::kBF16:
    case DType::kF16:
    case DType::kBool:
      return;
  }
}

}  // namespace

void ScatterKernel::cpu(const Args& a, Workspace) {
  if (a.walk.shape.numel() == 0) return;
  cpu::check_indices(a.index, a.walk.extent, a.walk.named_dim, a.bad_index);
  if (a.mode == ScatterMode::kAdd) return scatter_add(a);
  cpu::with_bits(a.y.dtype, [&]<class B>() { scatter<B>(a); });
}

}  // namespace tessera
