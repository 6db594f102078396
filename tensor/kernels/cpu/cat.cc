#include "tessera/tensor/kernels/cat.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera {
namespace {

// The elements from one row to the next, where a row is what lies in the dims from `dim` on. Nothing if rows are not
// contiguous, or not the same distance apart.
template <class AnyView>
std::optional<std::int64_t> row_step(const AnyView& x, int dim) {
  std::int64_t length = 1;
  for (int d = x.shape.ndim() - 1; d >= dim; --d) {
    if (x.shape[d] != 1 && x.strides[d] != length) return std::nullopt;
    length *= x.shape[d];
  }
  std::optional<std::int64_t> step;
  std::int64_t rows = 1;
  for (int d = dim - 1; d >= 0; --d) {
    if (x.shape[d] == 1) continue;
    if (step && x.strides[d] != *step * rows) return std::nullopt;
    if (!step) step = x.strides[d];
    rows *= x.shape[d];
  }
  return step.value_or(0);
}

// Where a row of one part comes from.
struct PartRows {
  const void* data;
  std::int64_t length;
  std::int64_t step;
};

// Shorter rows are copied part by part, in long loops over one column.
constexpr std::int64_t kShortRow = 8;

// The rows of all parts; nothing unless each has them, and they are long.
std::optional<std::vector<PartRows>> rows_of(const CatKernel::Args& a) {
  std::vector<PartRows> all;
  for (const ConstView& part : a.parts) {
    if (part.numel() == 0) continue;
    std::int64_t length = 1;
    for (int d = a.dim; d < part.shape.ndim(); ++d) length *= part.shape[d];
    const std::optional<std::int64_t> step = row_step(part, a.dim);
    if (!step || length < kShortRow) return std::nullopt;
    all.push_back({part.data, length, *step});
  }
  return all;
}

}  // namespace

// Row by row, if possible: each line of y is then written in order, and a part that occurs twice is read once.
void CatKernel::cpu(const Args& a, Workspace) {
  std::int64_t rows = 1;
  for (int d = 0; d < a.dim; ++d) rows *= a.y.shape[d];
  const std::optional<std::int64_t> step = row_step(a.y, a.dim);
  const auto parts = rows > 1 && step ? rows_of(a) : std::nullopt;
  if (!parts)
    return for_each_copy(a, [](const AxpbyKernel::Args& copy) { AxpbyKernel::cpu(copy, {}); });
  std::int64_t length = 0;
  for (const PartRows& part : *parts) length += part.length;
  cpu::with_bits(a.y.dtype, [&]<class B>() {
    cpu::parallel_rows(rows, length, [&](std::int64_t row) {
      B* to = static_cast<B*>(a.y.data) + row * *step;
      for (const PartRows& part : *parts) {
        cpu::copy_run(static_cast<const B*>(part.data) + row * part.step, 1, to, 1, part.length);
        to += part.length;
      }
    });
  });
}

}  // namespace tessera
