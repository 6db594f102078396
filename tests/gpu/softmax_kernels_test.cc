// Softmax on a GPU and its derivative against the CPU's.
#include <catch2/catch.hpp>
#include <limits>

#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

SoftmaxKernel::Args softmax_args(const HostTensor& x, const HostTensor& y, bool log) {
  SoftmaxKernel::Args args;
  args.x = x;
  args.y = y;
  args.log = log;
  return args;
}

void compare_softmax(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  for (const bool log : {false, true}) {
    const HostTensor x = rows_tensor(dtype, rows, n, layout).random(-6, 6),
                     y = rows_tensor(dtype, rows, n, layout);
    compare_devices<SoftmaxKernel>(row_case(dtype, rows, n, layout), softmax_args(x, y, log),
                                   close_in(dtype));
  }
}

void compare_backward(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  for (const bool log : {false, true}) {
    const HostTensor dy = rows_tensor(dtype, rows, n, layout).random(-1, 1),
                     y = rows_tensor(dtype, rows, n, layout).random(log ? -9 : 0, log ? -1 : 0.1),
                     dx = rows_tensor(dtype, rows, n, layout);
    SoftmaxBackwardKernel::Args args;
    args.dy = dy;
    args.y = y;
    args.dx = dx;
    args.log = log;
    Tolerance tolerance = close_in(dtype);
    tolerance.atol += tolerance.rtol;  // a difference of numbers around 1
    compare_devices<SoftmaxBackwardKernel>(row_case(dtype, rows, n, layout), args, tolerance);
  }
}

}  // namespace

TEST_CASE("softmax rows on a GPU are the CPU's, for every dtype, layout and length") {
  for (const DType dtype : kFloating) {
    for (const RowLayout layout : kRowLayouts) {
      for (const std::int64_t n : kLengths) compare_softmax(dtype, 5, n, layout);
    }
  }
}

TEST_CASE("softmax of rows that a block holds, and of longer ones that it reads twice") {
  for (const std::int64_t n : {32768, 32776, 40001}) {
    compare_softmax(DType::kF32, 1, n, RowLayout::kContiguous);
    compare_softmax(DType::kBF16, 2, n, RowLayout::kContiguous);
  }
  for (const std::int64_t n : {16384, 16388}) compare_backward(DType::kF32, 1, n, {});
  for (const std::int64_t n : {32768, 33000}) compare_backward(DType::kF16, 1, n, {});
}

TEST_CASE("softmax of many short rows: more blocks than one") {
  compare_softmax(DType::kF32, 1001, 5, RowLayout::kContiguous);
  compare_softmax(DType::kBF16, 300, 40, RowLayout::kContiguous);
  compare_backward(DType::kF32, 1001, 4, RowLayout::kContiguous);
}

TEST_CASE("softmax of infinities and NaN: what a GPU gives the CPU gives") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const auto value = [=](std::int64_t i) {
      const std::int64_t row = i / 40, at = i % 40;
      if (row == 0) return -infinity;
      if (row == 1 && at == 7) return infinity;
      if (row == 2 && at == 9) return std::nan("");
      if (row == 3) return at == 11 ? 1.0 : -infinity;
      return 100.0 * static_cast<double>(at);
    };
    const HostTensor x = HostTensor(dtype, {5, 40}).filled(value), y(dtype, {5, 40});
    for (const bool log : {false, true})
      compare_devices<SoftmaxKernel>("special", softmax_args(x, y, log), close_in(dtype));
  }
}

TEST_CASE("softmax over a middle dim, in place, and of nothing") {
  const HostTensor x = HostTensor(DType::kF32, {3, 5, 70}, {350, 1, 5}).random();
  compare_devices<SoftmaxKernel>("in place", softmax_args(x, x, false), close_in(DType::kF32));
  for (const Shape& shape : {Shape{0, 4}, Shape{4, 0}}) {
    const HostTensor none(DType::kF32, shape);
    compare_devices<SoftmaxKernel>("nothing", softmax_args(none, none, false));
  }
}

TEST_CASE("softmax_backward rows on a GPU are the CPU's") {
  for (const DType dtype : kFloating) {
    for (const RowLayout layout : kRowLayouts) {
      for (const std::int64_t n : kLengths) compare_backward(dtype, 3, n, layout);
    }
  }
}

}  // namespace tessera::testing
