// The plan of a product on a GPU, interpreted as the library would: plain loops over column-major
// matrices, compared with a plain row-major product.
#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_finish.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using cuda::LtCompute;
using cuda::LtEpilogue;
using cuda::LtMatrix;
using cuda::LtProduct;
using cuda::MatmulCall;
using cuda::MatmulPlan;
using cuda::plan_matmul;
using testing::thrown;

constexpr DType kFloating[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

// Numbers in place of a tensor's memory, for any dtype; views point at the first one.
struct Memory {
  Shape shape, strides;
  std::vector<double> values;

  Memory(const Shape& s, const Shape& st, double seed) : shape(s), strides(st) {
    std::int64_t last = 0;
    for (int d = 0; d < s.ndim(); ++d) last += (s[d] - 1) * st[d];
    for (std::int64_t i = 0; i <= last; ++i)
      values.push_back(static_cast<double>((i * 7 + static_cast<std::int64_t>(seed)) % 13) - 6);
  }
  std::int64_t offset(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    const int ndim = shape.ndim();
    std::int64_t at = row * strides[ndim - 2] + column * strides[ndim - 1];
    for (int d = ndim - 3; d >= 0; --d) {
      at += matrix % shape[d] * strides[d];
      matrix /= shape[d];
    }
    return at;
  }
  double at(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(offset(matrix, row, column))];
  }
  // The address is used for alignment only; it is never dereferenced.
  template <class AnyView>
  AnyView view(DType dtype, std::uintptr_t address = 4096) const {
    AnyView out;
    out.data = reinterpret_cast<void*>(address);
    out.dtype = dtype;
    out.shape = shape;
    out.strides = strides;
    return out;
  }
};

Shape joined(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  Shape shape = batch;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

// [batch..., rows, columns] by rows or by columns, with `gap` additional elements per row or
// column.
Memory memory(const Shape& batch, std::int64_t rows, std::int64_t columns, bool by_rows,
              std::int64_t gap, double seed) {
  const std::int64_t step = (by_rows ? columns : rows) + gap;
  std::int64_t row = by_rows ? step : 1, column = by_rows ? 1 : step;
  REQUIRE(settle_strides(rows, columns, row, column));
  Shape strides = contiguous_strides(batch);
  for (int d = 0; d < batch.ndim(); ++d) strides[d] *= (by_rows ? rows : columns) * step;
  strides.push_back(row);
  strides.push_back(column);
  return Memory(joined(batch, rows, columns), strides, seed);
}

// The library's value at (row, column) of op(matrix).
double element(const std::vector<double>& values, const LtMatrix& matrix, bool transposed,
               std::int64_t base, std::int64_t row, std::int64_t column) {
  if (transposed) std::swap(row, column);
  CHECK_FALSE((row >= matrix.rows || column >= matrix.columns || matrix.leading < matrix.rows));
  return values.at(static_cast<std::size_t>(base + row + column * matrix.leading));
}

// One call of the library on `product`: the sums of products alone.
void interpret(const LtProduct& product, const MatmulCall& call, const Memory& a, const Memory& b,
               std::vector<double>& result, std::int64_t result_base) {
  const bool ft = product.first_transposed, st = product.second_transposed;
  const std::int64_t k = ft ? product.first.rows : product.first.columns;
  REQUIRE(k == (st ? product.second.columns : product.second.rows));
  for (std::int64_t i = 0; i < call.batch; ++i) {
    for (std::int64_t column = 0; column < product.result.columns; ++column) {
      for (std::int64_t row = 0; row < product.result.rows; ++row) {
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p)
          sum += element(b.values, product.first, ft, call.b + i * product.first.batch_stride, row,
                         p) *
                 element(a.values, product.second, st, call.a + i * product.second.batch_stride, p,
                         column);
        result.at(static_cast<std::size_t>(result_base + i * product.result.batch_stride + row +
                                           column * product.result.leading)) = sum;
      }
    }
  }
}

// Runs the plan's calls and compares c, including all bytes that no call should write. Returns the
// number of calls.
std::int64_t check_plan(const Memory& a, const Memory& b, const Memory& c) {
  const MatmulKernel::Args args = {.a = a.view<ConstView>(DType::kF32),
                                   .b = b.view<ConstView>(DType::kF32),
                                   .bias = {},
                                   .before = {},
                                   .c = c.view<View>(DType::kF32)};
  const MatmulPlan plan = plan_matmul(args);
  CHECK_FALSE(plan.staged);
  std::vector<double> got = c.values, expected = c.values;
  for (std::int64_t i = 0; i < plan.calls; ++i) {
    const MatmulCall call = plan.call(i);
    interpret(plan.plain, call, a, b, got, call.c);
  }
  for (std::int64_t matrix = 0; matrix < args.batch(); ++matrix) {
    for (std::int64_t i = 0; i < args.m(); ++i) {
      for (std::int64_t j = 0; j < args.n(); ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < args.k(); ++p) sum += a.at(matrix, i, p) * b.at(matrix, p, j);
        expected[static_cast<std::size_t>(c.offset(matrix, i, j))] = sum;
      }
    }
  }
  CHECK((got == expected));  // prints no list of both
  return plan.calls;
}

// A product of 4 x 8 by 8 x 16, for tests of dtypes and addresses.
struct Plain {
  DType operands = DType::kF32, result = DType::kF32, bias = DType::kF32;
  bool has_bias = false, has_before = false;
  ActivationKind activation = ActivationKind::kNone;
  std::uintptr_t before_address = 4096;
  std::int64_t before_gap = 0;

  MatmulKernel::Args args() const {
    const Memory a = memory({}, 4, 8, true, 0, 1), b = memory({}, 8, 16, true, 0, 2),
                 c = memory({}, 4, 16, true, 0, 3), before = memory({}, 4, 16, true, before_gap, 4);
    MatmulKernel::Args out = {.a = a.view<ConstView>(operands),
                              .b = b.view<ConstView>(operands),
                              .bias = {},
                              .before = {},
                              .c = c.view<View>(result),
                              .activation = activation};
    if (has_bias) out.bias = Memory({1, 16}, {16, 1}, 5).view<ConstView>(bias);
    if (has_bias) out.bias.shape = {16};
    if (has_bias) out.bias.strides = {1};
    if (has_before) out.before = before.view<View>(result, before_address);
    return out;
  }
  MatmulPlan plan() const { return plan_matmul(args()); }
};

}  // namespace

TEST_CASE("plan: one product of every layout and small shape") {
  for (std::int64_t m : {1, 2, 5}) {
    for (std::int64_t k : {1, 3, 4}) {
      for (std::int64_t n : {1, 2, 7}) {
        for (int layout = 0; layout < 16; ++layout) {
          const std::int64_t gap_a = layout & 4 ? 3 : 0, gap_b = layout & 8 ? 2 : 0;
          const Memory a = memory({}, m, k, layout & 1, gap_a, 1),
                       b = memory({}, k, n, layout & 2, gap_b, 2);
          CHECK(check_plan(a, b, memory({}, m, n, true, 0, 3)) == 1);
          CHECK(check_plan(a, b, memory({}, m, n, true, 4, 3)) == 1);
        }
      }
    }
  }
}

TEST_CASE("plan: batches of one stride are one call") {
  for (const Shape& batch : {Shape{4}, Shape{2, 3}, Shape{2, 1, 3}, Shape{1, 5}, Shape{1}}) {
    for (bool by_rows : {true, false}) {
      const Memory a = memory(batch, 3, 4, by_rows, 1, 1), b = memory(batch, 4, 2, !by_rows, 0, 2);
      CHECK(check_plan(a, b, memory(batch, 3, 2, true, 1, 3)) == 1);
    }
  }
}

TEST_CASE("plan: batches of several strides are walked, but for the longest") {
  // Heads beside each other: [batch 2, heads 3, tokens 4, width 5] of rows of 15.
  const Memory q({2, 3, 4, 5}, {60, 5, 15, 1}, 1), k({2, 3, 5, 4}, {60, 5, 1, 15}, 2);
  CHECK(check_plan(q, k, memory({2, 3}, 4, 4, true, 0, 3)) == 2);
  const Memory values({2, 3, 4, 5}, {60, 5, 15, 1}, 3);
  CHECK(check_plan(memory({2, 3}, 4, 4, true, 0, 4), values,
                   Memory({2, 3, 4, 5}, {60, 5, 15, 1}, 5)) == 2);
  // One operand has a dim that cannot be merged.
  const Memory swapped({3, 2, 4, 5}, {20, 60, 5, 1}, 1);
  CHECK(check_plan(swapped, memory({3, 2}, 5, 2, true, 0, 2), memory({3, 2}, 4, 2, true, 0, 3)) ==
        2);
  // Three dims, none of which can be merged with the next.
  const Memory mixed({2, 3, 4, 2, 2}, {4, 32, 8, 2, 1}, 1);
  CHECK(check_plan(mixed, memory({2, 3, 4}, 2, 3, true, 0, 2),
                   memory({2, 3, 4}, 2, 3, true, 0, 3)) == 2);
}

TEST_CASE("plan: broadcast batches have a stride of 0") {
  const Memory one({6, 4, 2}, {0, 2, 1}, 2), all = memory({6}, 3, 4, true, 0, 1);
  CHECK(check_plan(all, one, memory({6}, 3, 2, true, 0, 3)) == 1);
  // One key head for each of 2 examples.
  const Memory heads({2, 3, 4, 2}, {8, 0, 2, 1}, 2), a = memory({2, 3}, 3, 4, true, 0, 1);
  CHECK(check_plan(a, heads, memory({2, 3}, 3, 2, true, 0, 3)) == 2);
  const Memory outer({2, 3, 4, 2}, {0, 8, 2, 1}, 2);
  CHECK(check_plan(a, outer, memory({2, 3}, 3, 2, true, 0, 3)) == 2);
}

TEST_CASE("plan: a long batch takes several calls") {
  const std::int64_t most = cuda::kMostInBatch;
  const auto calls = [](std::int64_t count) {
    return check_plan(memory({count}, 1, 1, true, 0, 1), memory({count}, 1, 2, true, 0, 2),
                      memory({count}, 1, 2, true, 0, 3));
  };
  CHECK(calls(most) == 1);
  CHECK(calls(most + 1) == 2);
  CHECK(calls(2 * most + 7) == 3);
  // Also inside a loop over another dim.
  const Memory a({2, most + 3, 1, 1}, {2 * most + 9, 1, 1, 1}, 1);
  CHECK(check_plan(a, memory({2, most + 3}, 1, 1, true, 0, 2),
                   memory({2, most + 3}, 1, 1, true, 0, 3)) == 4);
}

TEST_CASE("plan: which dtypes the library writes") {
  for (DType operands : kFloating) {
    for (DType result : kFloating) {
      INFO(dtype_name(operands) << " to " << dtype_name(result));
      const MatmulPlan plan = Plain{.operands = operands, .result = result}.plan();
      const bool half = operands == DType::kBF16 || operands == DType::kF16;
      CHECK(plan.staged == !(operands == result || (half && result == DType::kF32)));
      CHECK(plan.plain.first.dtype == operands);
      CHECK(plan.plain.second.dtype == operands);
      const DType sums = operands == DType::kF64 ? DType::kF64 : DType::kF32;
      CHECK(plan.plain.result.dtype == (plan.staged ? sums : result));
      CHECK(plan.plain.compute == (operands == DType::kF64 ? LtCompute::kF64 : LtCompute::kF32));
    }
  }
}

TEST_CASE("plan: TF32 is for f32 alone, and only where it is allowed") {
  for (DType dtype : kFloating) {
    const MatmulKernel::Args args = Plain{.operands = dtype, .result = dtype}.args();
    CHECK(plan_matmul(args).plain.compute != LtCompute::kTf32);
    CHECK((plan_matmul(args, {.tf32 = true}).plain.compute == LtCompute::kTf32) ==
          (dtype == DType::kF32));
  }
}

TEST_CASE("plan: a bias that the result's dtype holds is the library's") {
  for (DType dtype : kFloating) {
    for (DType bias : kFloating) {
      const MatmulPlan plan =
          Plain{.operands = dtype, .result = dtype, .bias = bias, .has_bias = true}.plan();
      const bool half = bias == DType::kBF16 || bias == DType::kF16;
      const bool fits = bias == dtype || dtype == DType::kF64 || (half && dtype == DType::kF32);
      INFO(dtype_name(bias) << " into " << dtype_name(dtype));
      CHECK(plan.staged == !fits);
      CHECK(plan.plain.epilogue == (fits ? LtEpilogue::kBias : LtEpilogue::kNone));
    }
  }
}

TEST_CASE("plan: a bias that lies as the library wants it is read where it is") {
  MatmulKernel::Args args = Plain{.has_bias = true}.args();
  CHECK(cuda::takes_bias(args));
  args.bias.dtype = DType::kBF16;
  CHECK_FALSE(cuda::takes_bias(args));
  args.bias.dtype = DType::kF32;
  args.bias.strides = {0};
  CHECK_FALSE(cuda::takes_bias(args));
  args.bias.strides = {1};
  for (std::uintptr_t address : {4100, 4104, 4112}) {
    args.bias.data = reinterpret_cast<const void*>(address);
    CHECK(cuda::takes_bias(args) == (address == 4112));
  }
}

TEST_CASE("plan: gelu_tanh of 16-bit results is the library's, where it can keep what is kept") {
  for (DType dtype : kFloating) {
    for (ActivationKind activation :
         {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGelu,
          ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
      const Plain plain{.operands = dtype, .result = dtype, .activation = activation};
      const bool half = dtype == DType::kBF16 || dtype == DType::kF16;
      CHECK(plain.plan().fuses == (half && activation == ActivationKind::kGeluTanh));
    }
  }
  Plain gelu{.operands = DType::kBF16,
             .result = DType::kBF16,
             .bias = DType::kBF16,
             .activation = ActivationKind::kGeluTanh};
  CHECK(gelu.plan().fused.epilogue == LtEpilogue::kGelu);
  gelu.has_bias = true;
  CHECK(gelu.plan().fused.epilogue == LtEpilogue::kGeluBias);
  gelu.has_before = true;
  CHECK(gelu.plan().fused.epilogue == LtEpilogue::kGeluAuxBias);
  CHECK(gelu.plan().fused.aux_leading == 16);
  CHECK(gelu.plan().plain.epilogue == LtEpilogue::kBias);
  gelu.before_gap = 8;
  CHECK_FALSE(gelu.plan().fuses);
  gelu.has_bias = false;
  CHECK(gelu.plan().fused.aux_leading == 24);
  CHECK(gelu.plan().fused.result.leading == 16);
  CHECK(gelu.plan().plain.result.leading == 24);  // `before`, which a kernel then reads
  gelu.before_gap = 4;
  CHECK_FALSE(gelu.plan().fuses);
  gelu.before_gap = 0;
  gelu.before_address += 8;
  CHECK_FALSE(gelu.plan().fuses);
  gelu.has_bias = false;
  gelu.before_address += 8;
  // Every matrix of a batch that is looped over must have the alignment of the first.
  for (const auto& [step, fits] : {std::pair<std::int64_t, bool>{200, true}, {204, false}}) {
    const Memory a = memory({3, 2}, 4, 8, true, 0, 1), b({3, 2, 8, 16}, {0, 128, 16, 1}, 2),
                 c = memory({3, 2}, 4, 16, true, 0, 3);
    const Memory before({3, 2, 4, 16}, {64, step, 16, 1}, 4);
    const MatmulPlan plan = plan_matmul({.a = a.view<ConstView>(DType::kBF16),
                                         .b = b.view<ConstView>(DType::kBF16),
                                         .bias = {},
                                         .before = before.view<View>(DType::kBF16),
                                         .c = c.view<View>(DType::kBF16),
                                         .activation = ActivationKind::kGeluTanh});
    CHECK(plan.calls == 2);
    CHECK(plan.fuses == fits);
  }
  CHECK(gelu.plan().fused.epilogue == LtEpilogue::kGeluAux);
  gelu.result = DType::kF32;
  CHECK_FALSE(gelu.plan().fuses);
}

TEST_CASE("plan: an inner dim of 0 multiplies nothing") {
  MatmulKernel::Args args = Plain{}.args();
  args.a.shape = {4, 0};
  args.b.shape = {0, 16};
  const MatmulPlan plan = plan_matmul(args);
  CHECK(plan.staged);
  CHECK_FALSE(plan.multiplies);
  CHECK(MatmulKernel::cuda_workspace(args) == 0);
}

TEST_CASE("plan: what the library cannot count is refused") {
  MatmulKernel::Args args = Plain{}.args();
  args.c.shape = {std::int64_t{1} << 31, 16};
  args.a.shape = {std::int64_t{1} << 31, 8};
  CHECK(thrown<InvalidArgument>([&] { plan_matmul(args); }) ==
        "[matmul] cuBLAS counts rows and columns up to 2147483647, but this product is 2147483648 "
        "x 8 by 8 x 16; split the longest dim");
  args.c.shape = {(std::int64_t{1} << 31) - 1, 16};
  args.a.shape = {(std::int64_t{1} << 31) - 1, 8};
  plan_matmul(args);
}

TEST_CASE("plan: scratch") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto scratch_of = [](const MatmulKernel::Args& args) {
    return cuda::matmul_scratch(args, plan_matmul(args));
  };
  const auto sizes = [&](const Plain& plain) { return scratch_of(plain.args()); };
  const cuda::MatmulScratch plain = sizes({});
  CHECK(plain.bias == 0);
  CHECK(plain.product == 0);
  CHECK(plain.library == kMiB + 64 * 256);
  CHECK(sizes({.has_bias = true}).bias == 256);
  CHECK(sizes({.operands = DType::kF32, .result = DType::kBF16}).product == 256);
  CHECK(sizes({.operands = DType::kF64, .result = DType::kF32}).product == 512);
  MatmulKernel::Args large = Plain{}.args();
  large.c.shape = {4096, 16};
  large.a.shape = {4096, 8};
  CHECK(scratch_of(large).library == 1 * kMiB + 16 * kMiB);
  large.c.shape = {1 << 20, 16};
  large.a.shape = {1 << 20, 8};
  CHECK(scratch_of(large).library == 32 * kMiB);
  CHECK(MatmulKernel::cuda_workspace(large) == 32 * kMiB);
}

TEST_CASE("finish: rows become one where nothing has gaps") {
  double number = 0;
  cuda::FinishWork work;
  work.batch = 2, work.rows = 3, work.columns = 8;
  work.result = {.data = &number, .dtype = DType::kF32, .row_stride = 8, .batch_stride = 24};
  work.product = work.result;
  CHECK(cuda::in_one_row(work).columns == 48);
  CHECK(cuda::in_one_row(work).rows * cuda::in_one_row(work).batch == 1);
  cuda::FinishWork gaps = work;
  gaps.result.row_stride = 9;
  CHECK(cuda::in_one_row(gaps).columns == 8);
  gaps = work;
  gaps.product.batch_stride = 32;
  CHECK(cuda::in_one_row(gaps).columns == 8);
  gaps = work;
  gaps.bias = &number;
  CHECK(cuda::in_one_row(gaps).columns == 8);
}

TEST_CASE("finish: rows that whole packs cover") {
  alignas(16) float numbers[8] = {};
  cuda::FinishWork work;
  work.batch = 2, work.rows = 3, work.columns = 8;
  work.result = {.data = numbers, .dtype = DType::kBF16, .row_stride = 16, .batch_stride = 64};
  CHECK(cuda::takes_packs(work, 8));
  cuda::FinishWork other = work;
  other.columns = 12;
  CHECK_FALSE(cuda::takes_packs(other, 8));
  other.rows = other.batch = 1;
  CHECK(cuda::takes_packs(other, 8));
  other = work;
  other.result.row_stride = 12;
  CHECK_FALSE(cuda::takes_packs(other, 8));
  other = work;
  other.result.batch_stride = 68;
  CHECK_FALSE(cuda::takes_packs(other, 8));
  other = work;
  other.before = {.data = numbers + 1, .dtype = DType::kBF16, .row_stride = 16, .batch_stride = 64};
  CHECK_FALSE(cuda::takes_packs(other, 8));
}

}  // namespace tessera
