#include <algorithm>

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// body(position) for the elements [begin, end) that are not 0.
template <class T, class Body>
void for_nonzero(const NonzeroKernel::Args& a, std::int64_t begin, std::int64_t end,
                 const Body& body) {
  const auto t = cpu::make_traversal(a.x.shape, a.x.strides);
  std::int64_t at = begin;
  cpu::walk(t, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    const T* x = a.x.as<T>() + offsets[0];
    for (std::int64_t i = 0; i < count; ++i) {
      if (convert_element<bool>(x[i * steps[0]])) body(at + i);
    }
    at += count;
  });
}

// body(chunk, begin, end), distributed over threads.
template <class Body>
void for_chunks(const NonzeroKernel::Args& a, const Body& body) {
  const std::int64_t total = a.x.numel(), chunk = a.chunk(), chunks = a.chunks();
  cpu::parallel_for(chunks, cpu::threads_for(total),
                    [&](std::int64_t c) { body(c, c * chunk, std::min(total, (c + 1) * chunk)); });
}

void write_place(const NonzeroKernel::Args& a, std::int64_t row, std::int64_t position) {
  std::int64_t* y = a.y.as<std::int64_t>() + row * a.y.strides[0];
  for (int d = a.x.shape.ndim() - 1; d >= 0; --d) {
    y[d * a.y.strides[1]] = position % a.x.shape[d];
    position /= a.x.shape[d];
  }
}

template <class T>
void count(const NonzeroKernel::Args& a, std::int64_t* before) {
  for_chunks(a, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    std::int64_t found = 0;
    for_nonzero<T>(a, begin, end, [&](std::int64_t) { ++found; });
    before[c] = found;
  });
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c <= a.chunks(); ++c) {
    const std::int64_t found = c < a.chunks() ? before[c] : 0;
    before[c] = sum;
    sum += found;
  }
}

}  // namespace

void NonzeroKernel::cpu(const Args& a, Workspace scratch) {
  const std::int64_t rows = a.y.shape[0], columns = a.y.shape[1];
  auto* before = static_cast<std::int64_t*>(scratch.data);
  with_type(a.x.dtype, [&]<class T>() {
    count<T>(a, before);
    for_chunks(a, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
      std::int64_t row = before[c];
      if (row >= rows) return;
      for_nonzero<T>(a, begin, end, [&](std::int64_t position) {
        if (row < rows) write_place(a, row++, position);
      });
    });
  });
  for (std::int64_t row = before[a.chunks()]; row < rows; ++row) {
    for (std::int64_t d = 0; d < columns; ++d)
      a.y.as<std::int64_t>()[row * a.y.strides[0] + d * a.y.strides[1]] = a.fill;
  }
}

}  // namespace tessera
