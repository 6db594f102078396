// The CUDA kernel of argsort against the CPU's: the same positions, for every dtype.

#include "tessera/tensor/kernels/order.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;

// Many equal values, and in floating dtypes NaN, infinities and both zeros.
HostTensor values(DType dtype, const Shape& shape, const Shape& strides, std::int64_t kinds) {
  return HostTensor(dtype, shape, strides).filled([&](std::int64_t i) {
    const std::int64_t x = i * 7919 % 104'729 % kinds;
    if (is_floating(dtype) && x % 11 == 3) {
      const double special[] = {std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(), 0.0, -0.0};
      return special[x % 5];
    }
    return static_cast<double>(x - (dtype == DType::kU8 ? 0 : kinds / 2)) *
           (is_floating(dtype) ? 0.37 : 1);
  });
}

void compare(const HostTensor& x, const Shape& shape, std::int64_t kept, bool descending,
             const Shape& y_strides = {}) {
  Shape y_shape = shape;
  y_shape[shape.ndim() - 1] = kept;
  const HostTensor y(DType::kI64, y_shape,
                     y_strides.ndim() > 0 ? y_strides : contiguous_strides(y_shape));
  ArgsortKernel::Args args;
  args.x = x;
  args.y = y;
  args.descending = descending;
  compare_devices<ArgsortKernel>(std::string(dtype_name(args.x.dtype)) + " of " +
                                     std::to_string(shape.numel()) + " in lines of " +
                                     std::to_string(shape.back()) + ", kept " +
                                     std::to_string(kept) + (descending ? ", descending" : ""),
                                 args);
}

}  // namespace

TEST_CASE("argsort on the GPU: lines that a block sorts") {
  for (DType dtype : kAllDTypes) {
    for (bool descending : {false, true}) {
      for (std::int64_t n : {1, 2, 3, 31, 64, 100, 1000}) {
        const Shape shape{7, n};
        const HostTensor x = values(dtype, shape, contiguous_strides(shape), 40);
        compare(x, shape, n, descending);
        compare(x, shape, (n + 1) / 2, descending);
      }
      const Shape whole{2048};
      compare(values(dtype, whole, {1}, 500), whole, 2048, descending);
    }
  }
}

TEST_CASE("argsort on the GPU: lines that are sorted by digits") {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI64, DType::kI32}) {
    for (bool descending : {false, true}) {
      const Shape shape{3, 2049};
      const HostTensor x = values(dtype, shape, contiguous_strides(shape), 5000);
      compare(x, shape, 2049, descending);
      compare(x, shape, 5, descending);
    }
  }
  const Shape one{132'000};
  compare(values(DType::kF32, one, {1}, 100'000), one, 132'000, false);
}

TEST_CASE("argsort on the GPU: any layout, and nothing to sort") {
  for (std::int64_t n : {9, 2500}) {
    const Shape shape{2, 3, n};
    const HostTensor x = values(DType::kF32, shape, {3, 1, 6}, 30);
    compare(x, shape, n, false, {1, 2 * n, 2});
    const HostTensor repeated = values(DType::kF32, shape, {0, 0, 1}, 30);
    compare(repeated, shape, n, true);
  }
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 5}})
    compare(values(DType::kF32, shape, contiguous_strides(shape), 5), shape, shape.back(), false);
  compare(values(DType::kF32, {3, 4}, {4, 1}, 5), {3, 4}, 0, false);
}

}  // namespace tessera
