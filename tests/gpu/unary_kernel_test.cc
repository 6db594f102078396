// The CUDA kernel of the unary operations against its CPU twin, which is the specification.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/kernels/unary.h"
#include "tessera/tests/gpu/device_buffer.h"

namespace tessera {
namespace {

using testing::cuda_check;
using testing::DeviceBuffer;

struct NamedOp {
  UnaryOp op;
  const char* name;
  bool same_bits_f64;  // no function of the maths library in it
};

constexpr NamedOp kOps[] = {
    {UnaryOp::kNeg, "neg", true},
    {UnaryOp::kAbs, "abs", true},
    {UnaryOp::kSign, "sign", true},
    {UnaryOp::kSquare, "square", true},
    {UnaryOp::kReciprocal, "reciprocal", true},
    {UnaryOp::kExp, "exp", false},
    {UnaryOp::kExpm1, "expm1", false},
    {UnaryOp::kLog, "log", false},
    {UnaryOp::kLog1p, "log1p", false},
    {UnaryOp::kSqrt, "sqrt", true},
    {UnaryOp::kRsqrt, "rsqrt", true},
    {UnaryOp::kSin, "sin", false},
    {UnaryOp::kCos, "cos", false},
    {UnaryOp::kErf, "erf", false},
    {UnaryOp::kTanh, "tanh", false},
    {UnaryOp::kSigmoid, "sigmoid", false},
    {UnaryOp::kRelu, "relu", true},
    {UnaryOp::kGelu, "gelu", false},
    {UnaryOp::kGeluTanh, "gelu_tanh", false},
    {UnaryOp::kSilu, "silu", false},
    {UnaryOp::kSoftplus, "softplus", false},
    {UnaryOp::kFloor, "floor", true},
    {UnaryOp::kCeil, "ceil", true},
    {UnaryOp::kRound, "round", true},
    {UnaryOp::kTrunc, "trunc", true},
    {UnaryOp::kIsNan, "isnan", true},
    {UnaryOp::kIsInf, "isinf", true},
    {UnaryOp::kIsFinite, "isfinite", true},
    {UnaryOp::kLogicalNot, "logical_not", true},
};
static_assert(std::size(kOps) == static_cast<std::size_t>(UnaryOp::kCount));

// `n` numbers from -12 to 12, then the special ones as far as they fit.
template <class T>
std::vector<T> inputs(std::int64_t n) {
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> special = {
      T(0), -T(0), infinity, -infinity, std::numeric_limits<T>::min(), std::nan("")};
  std::vector<T> x;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool at_end = n - i <= static_cast<std::int64_t>(special.size());
    x.push_back(at_end ? special[static_cast<std::size_t>(n - i - 1)]
                       : T(24) * T(i) / T(n) - T(12));
  }
  return x;
}

template <class T>
UnaryKernel::Args args_of(UnaryOp op, const T* x, T* y, const Shape& shape,
                          const Shape& x_strides) {
  UnaryKernel::Args args;
  args.op = op;
  args.compute = dtype_of<T>;
  args.x = {.data = x, .dtype = dtype_of<T>, .shape = shape, .strides = x_strides};
  args.y = {.data = y, .dtype = dtype_of<T>, .shape = shape, .strides = contiguous_strides(shape)};
  return args;
}

template <class T>
bool agree(T cpu, T gpu, bool same_bits) {
  if (std::isnan(cpu) || std::isnan(gpu)) return std::isnan(cpu) && std::isnan(gpu);
  if (cpu == gpu) return std::signbit(cpu) == std::signbit(gpu);
  return !same_bits && std::abs(cpu - gpu) <= 8 * std::numeric_limits<T>::epsilon() * std::abs(cpu);
}

// Runs both twins on one input; `first` is where x begins in its buffer, so that it can be
// misaligned.
template <class T>
void compare(const NamedOp& op, const Shape& shape, const Shape& x_strides, std::int64_t elements,
             std::int64_t first) {
  const std::vector<T> x = inputs<T>(elements + first);
  const auto count = static_cast<std::size_t>(shape.numel());
  std::vector<T> expected(count);
  std::get<CpuEntry<UnaryKernel>>(cpu_table())
      .run(args_of<T>(op.op, x.data() + first, expected.data(), shape, x_strides), {});

  const DeviceBuffer<T> gpu_x(x);
  const DeviceBuffer<T> gpu_y(std::vector<T>(count, T(7)));
  UnaryKernel::cuda(nullptr,
                    args_of<T>(op.op, gpu_x.data() + first, gpu_y.data(), shape, x_strides), {});
  cuda_check(cudaDeviceSynchronize());
  const std::vector<T> actual = gpu_y.values();

  INFO(op.name << " of " << dtype_name(dtype_of<T>) << ", " << count << " elements, from element "
               << first);
  const bool same_bits = sizeof(T) == sizeof(float) || op.same_bits_f64;
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (agree(expected[i], actual[i], same_bits)) continue;
    if (++different == 1)
      UNSCOPED_INFO("first at " << i << ": CPU " << expected[i] << ", GPU " << actual[i]);
  }
  CHECK(different == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("a contiguous unary operation on the GPU equals the CPU's", "", float, double) {
  for (const NamedOp& op : kOps) {
    for (std::int64_t n : {0, 1, 3, 4, 255, 1023, 100003}) compare<TestType>(op, {n}, {1}, n, 0);
    compare<TestType>(op, {1001}, {1}, 1001, 1);
  }
}

TEMPLATE_TEST_CASE("a unary operation on a transposed view equals the CPU's", "", float, double) {
  for (const NamedOp& op : kOps) compare<TestType>(op, {33, 65}, {1, 33}, 33 * 65, 0);
}

TEST_CASE("more elements than the grid has threads") {
  compare<float>(kOps[0], {5'000'011}, {1}, 5'000'011, 0);
}

}  // namespace tessera
