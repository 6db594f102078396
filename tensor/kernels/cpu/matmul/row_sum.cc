// The sum of rows as the product of a row of ones with the matrix: one order of additions for both.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/reduce.h"

namespace tessera {
namespace {

constexpr std::int64_t kColumns = 256;  // of a task

}  // namespace

void RowSumKernel::cpu(const Args& a, Workspace) {
  const BFloat16 bf16(1.0f);
  const Float16 f16(1.0f);
  const void* one = a.x.dtype == DType::kBF16 ? static_cast<const void*>(&bf16) : &f16;
  const std::int64_t tasks = (a.columns() + kColumns - 1) / kColumns;
  cpu::parallel_rows(tasks, a.rows() * kColumns, [&](std::int64_t task) {
    const std::int64_t first = task * kColumns;
    const cpu::ConstMatrix x{.data = a.x.data, .dtype = a.x.dtype, .row_stride = a.x.strides[0]};
    const cpu::Matrix y{.data = a.y.data, .dtype = DType::kF32, .row_stride = a.columns()};
    cpu::multiply_row({.m = 1,
                       .n = std::min(kColumns, a.columns() - first),
                       .k = a.rows(),
                       .a = {.data = one, .dtype = a.x.dtype, .row_stride = 0, .column_stride = 0},
                       .b = x.at(0, first),
                       .c = y.at(0, first),
                       .beta = a.beta});
  });
}

}  // namespace tessera
