#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/indices.h"
#include "tessera/tensor/kernels/cpu/scatter_half.h"
#include "tessera/tensor/kernels/cpu/scatter_lines.h"
#include "tessera/tensor/kernels/indexing.h"

namespace tessera {
namespace {

// The source as elements of type T: in place, or converted into a buffer. Elements that are only
// moved have y's dtype.
template <class T>
class Source {
 public:
  explicit Source(const ScatterKernel::Args& a)
      : src_(a.src), in_place_(a.src.dtype == a.y.dtype), data_(a.src.as<T>()) {}

  /// n elements, at most kIndexRun, and how far they are apart.
  struct Run {
    const T* values;
    std::int64_t step;
  };
  Run read(std::int64_t offset, std::int64_t step, std::int64_t n, T* buffer) const {
    if (in_place_) return {data_ + offset, step};
    if constexpr (std::is_floating_point_v<T>)
      cpu::load_run(src_.dtype, cpu::advance(src_.data, src_.dtype, offset), step, n, buffer);
    return {buffer, 1};
  }

 private:
  const ConstView& src_;
  bool in_place_;
  const T* data_;
};

template <class T, ScatterMode kMode>
struct Scatter {
  const ScatterKernel::Args& a;
  Source<T> src{a};
  T* y = a.y.as<T>();
  cpu::ScatterLines lines{a};

  void run() const {
    if (lines.rows) return run_rows();
    cpu::parallel_for(lines.pieces, [&](std::int64_t p) {
      const std::int64_t begin = p * lines.piece, end = std::min(lines.total, begin + lines.piece);
      put_lines(begin, end);
    });
  }

  // Threads share destinations, so that each one moves rows that are as long as possible: parts of rows
  // far apart take up to half as long again.
  void run_rows() const {
    constexpr std::int64_t kLongest = 4096, kMostSpans = 8;
    const std::int64_t piece = lines.one_index ? std::max(lines.piece, kLongest) : lines.piece;
    const std::int64_t pieces = (lines.total + piece - 1) / piece;
    const std::int64_t moved = lines.count * std::min(lines.total, piece);
    const std::int64_t spans =
        lines.one_index ? std::clamp<std::int64_t>(moved / cpu::kPiece, 1, kMostSpans) : 1;
    cpu::parallel_for(pieces * spans, [&](std::int64_t p) {
      const std::int64_t begin = p / spans * piece, span = p % spans;
      put_rows(
          begin, std::min(lines.total, begin + piece),
          {.extent = a.walk.extent * (span + 1) / spans, .least = a.walk.extent * span / spans});
    });
  }

  // Adjacent elements of the last dim share an index and move together, if it is one of `wanted`.
  void put_rows(std::int64_t begin, std::int64_t end, const cpu::IndexRange& wanted) const {
    for (std::int64_t j = 0; j < lines.count; ++j) {
      const auto index_at = [&](std::int64_t offset) {
        return cpu::load_from_front(a.index, offset + j * lines.index_step, a.walk);
      };
      if (lines.one_index && !wanted.contains(index_at(0))) continue;
      cpu::walk(lines.others, begin, end,
                [&](const auto& offsets, const auto& steps, std::int64_t n) {
                  const std::int64_t index = index_at(offsets[1]);
                  if (index == a.skip) return;
                  T buffer[cpu::kIndexRun];
                  for (std::int64_t at = 0; at < n; at += cpu::kIndexRun) {
                    const std::int64_t count = std::min(cpu::kIndexRun, n - at);
                    const auto from = src.read(offsets[2] + j * lines.src_step + at * steps[2],
                                               steps[2], count, buffer);
                    put_run(y + offsets[0] + index * a.walk.stride + at * steps[0], steps[0],
                            from.values, from.step, count);
                  }
                });
    }
  }
  static void put_run(T* to, std::int64_t to_step, const T* from, std::int64_t from_step,
                      std::int64_t n) {
    if (to_step == 1 && from_step == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) cpu::put<kMode>(to[i], from[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) cpu::put<kMode>(to[i * to_step], from[i * from_step]);
    }
  }

  // Every element has an index of its own.
  void put_lines(std::int64_t begin, std::int64_t end) const {
    cpu::walk_lines(lines.others, begin, end, [&](const auto& offsets) {
      std::int64_t buffer[cpu::kIndexRun];
      T values[cpu::kIndexRun];
      for (std::int64_t at = 0; at < lines.count; at += cpu::kIndexRun) {
        const std::int64_t n = std::min(cpu::kIndexRun, lines.count - at);
        const std::int64_t* indices = cpu::read_indices(a.index, offsets[1] + at * lines.index_step,
                                                        lines.index_step, n, a.walk, buffer);
        const auto from = src.read(offsets[2] + at * lines.src_step, lines.src_step, n, values);
        put_line(y + offsets[0], indices, from, n);
      }
    });
  }
  void put_line(T* to, const std::int64_t* indices, const typename Source<T>::Run& from,
                std::int64_t n) const {
    const std::int64_t stride = a.walk.stride, step = from.step, skip = a.skip;
    if (stride == 1 && step == 1 && skip < 0) {
      for (std::int64_t i = 0; i < n; ++i) cpu::put<kMode>(to[indices[i]], from.values[i]);
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      if (indices[i] != skip) cpu::put<kMode>(to[indices[i] * stride], from.values[i * step]);
    }
  }
};

template <ScatterMode kMode>
void fold(const ScatterKernel::Args& a, Workspace scratch) {
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
      return cpu::ScatterHalf<kMode>(a).run(scratch);
    case DType::kBool:
      return;
  }
}

}  // namespace

void ScatterKernel::cpu(const Args& a, Workspace scratch) {
  if (a.walk.shape.numel() == 0) return;
  cpu::check_indices(a.index, {.extent = a.walk.extent, .least = a.walk.least}, a.walk.named_dim,
                     a.bad_index);
  switch (a.mode) {
    case ScatterMode::kAssign:
      return cpu::with_bits(a.y.dtype,
                            [&]<class B>() { Scatter<B, ScatterMode::kAssign>{a}.run(); });
    case ScatterMode::kAdd:
      return fold<ScatterMode::kAdd>(a, scratch);
    case ScatterMode::kMultiply:
      return fold<ScatterMode::kMultiply>(a, scratch);
    case ScatterMode::kMaximum:
      return fold<ScatterMode::kMaximum>(a, scratch);
    case ScatterMode::kMinimum:
      return fold<ScatterMode::kMinimum>(a, scratch);
  }
}

}  // namespace tessera
