// The elementwise CUDA kernels against the CPU's.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>

#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tests/gpu/elementwise_layouts.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::compute_of;
using testing::HostTensor;
using testing::in_order;
using testing::Layouts;
using testing::numbers_of;
using testing::strided_layouts;
using testing::tensor_of;
using testing::Tolerance;

constexpr DType kFloating[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
constexpr DType kWhole[] = {DType::kI64, DType::kI32, DType::kU8, DType::kBool};

std::string say(int op, DType dtype, const Layouts& layouts) {
  return "op " + std::to_string(op) + " of " + dtype_name(dtype) + ", " + layouts.name + " " +
         layouts.shape.str();
}

// ---- unary -------------------------------------------------------------------------------------

bool is_special(UnaryOp op) {
  return op == UnaryOp::kErfinv || op == UnaryOp::kLgamma || op == UnaryOp::kDigamma;
}

bool calls_library(UnaryOp op, DType compute) {
  if (op == UnaryOp::kSin || op == UnaryOp::kCos || op == UnaryOp::kTan || is_special(op))
    return true;
  if (compute == DType::kF32) return false;
  if (op >= UnaryOp::kAsin && op <= UnaryOp::kAtanh) return true;
  return op == UnaryOp::kExp2 || op == UnaryOp::kLog2 || op == UnaryOp::kLog10 ||
         op == UnaryOp::kErfc || op == UnaryOp::kExp || op == UnaryOp::kExpm1 ||
         op == UnaryOp::kLog || op == UnaryOp::kLog1p || op == UnaryOp::kErf ||
         op == UnaryOp::kTanh || op == UnaryOp::kSigmoid || op == UnaryOp::kGelu ||
         op == UnaryOp::kGeluTanh || op == UnaryOp::kSilu || op == UnaryOp::kSoftplus;
}

template <class C>
bool takes(UnaryOp op) {
  bool result = false;
  with_functor<functors::Unary>(op, [&]<class F>(F) { result = kTakes<F, C, 1>; });
  return result;
}

// Functions whose results of 16 bits, of contiguous operands, come from packed_math.h.
constexpr UnaryOp kRounded[] = {UnaryOp::kLog,     UnaryOp::kLog1p, UnaryOp::kRsqrt,
                                UnaryOp::kSin,     UnaryOp::kCos,   UnaryOp::kTanh,
                                UnaryOp::kSigmoid, UnaryOp::kErf,   UnaryOp::kSoftplus,
                                UnaryOp::kGelu,    UnaryOp::kSilu,  UnaryOp::kGeluTanh};

bool is_packed(DType y_dtype, const Layouts& layouts) {
  return is_contiguous(layouts.shape, layouts.a) && layouts.first == 0 && is_half(y_dtype);
}

// One unit in the last place, also of numbers below the normal ones.
Tolerance one_unit(DType dtype) {
  if (dtype == DType::kBF16) return {.rtol = 0x1p-7, .atol = 0x1p-133};
  return {.rtol = 0x1p-10, .atol = 0x1p-24};
}

Tolerance rounded_to(DType y_dtype, const Layouts& layouts) {
  return is_packed(y_dtype, layouts) ? one_unit(y_dtype) : Tolerance{};
}

// Derivatives with a zero, near which their terms cancel; they are multiplied by up to 8.
Tolerance rounded_slope(DType y_dtype, const Layouts& layouts) {
  Tolerance tolerance = rounded_to(y_dtype, layouts);
  if (tolerance.rtol > 0) tolerance.atol = 0x1p-16;
  return tolerance;
}

// Sums of terms that come from a library.
Tolerance unary_tolerance(UnaryOp op, DType compute, DType y_dtype, const Layouts& layouts) {
  const bool rounded =
      std::find(std::begin(kRounded), std::end(kRounded), op) != std::end(kRounded);
  if (compute == DType::kF32 && rounded && is_packed(y_dtype, layouts)) return one_unit(y_dtype);
  if (!calls_library(op, compute)) return {};
  if (is_special(op) && y_dtype == DType::kF64) return {.rtol = 1e-13, .atol = 1e-14};
  return testing::last_bit(y_dtype);
}

void compare_unary(UnaryOp op, DType x_dtype, DType y_dtype, const Layouts& layouts) {
  UnaryKernel::Args args;
  args.op = op;
  args.compute = is_floating(x_dtype) ? compute_dtype(x_dtype) : compute_of(y_dtype);
  if (y_dtype == DType::kBool) args.compute = compute_of(x_dtype);
  const HostTensor x = numbers_of(x_dtype, layouts, layouts.a, 1);
  const HostTensor y = tensor_of(y_dtype, layouts, layouts.y);
  args.x = x;
  args.y = y;
  compare_devices<UnaryKernel>(say(static_cast<int>(op), x_dtype, layouts), args,
                               unary_tolerance(op, args.compute, y_dtype, layouts));
}

const Layouts kTwoLayouts[] = {in_order(1025), strided_layouts()[9]};

TEST_CASE("unary: every operation of every dtype that it takes") {
  for (int number = 0; number < static_cast<int>(UnaryOp::kCount); ++number) {
    const auto op = static_cast<UnaryOp>(number);
    const bool predicate = op >= UnaryOp::kIsNan;
    for (const Layouts& layouts : kTwoLayouts) {
      for (DType dtype : kFloating) {
        if (takes<float>(op)) compare_unary(op, dtype, predicate ? DType::kBool : dtype, layouts);
      }
      for (DType dtype : kWhole) {
        if (takes<std::int64_t>(op))
          compare_unary(op, dtype, predicate ? DType::kBool : dtype, layouts);
        else
          compare_unary(op, dtype, DType::kF32, layouts);
      }
    }
  }
}

// All numbers of a dtype of 16 bits.
HostTensor every_number(DType dtype) {
  return HostTensor(dtype, {65536}).filled([dtype](std::int64_t i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double value = dtype == DType::kBF16 ? static_cast<double>(std::bit_cast<BFloat16>(bits))
                                               : static_cast<double>(std::bit_cast<Float16>(bits));
    // A GPU's conversion from f16 drops the sign of a NaN, which signbit would show.
    return std::isnan(value) ? std::nan("") : value;
  });
}

TEST_CASE("unary: every number of 16 bits") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const HostTensor x = every_number(dtype);
    for (int number = 0; number < static_cast<int>(UnaryOp::kCount); ++number) {
      const auto op = static_cast<UnaryOp>(number);
      if (!takes<float>(op) || is_special(op)) continue;
      const DType y_dtype = op >= UnaryOp::kIsNan ? DType::kBool : dtype;
      const HostTensor y(y_dtype, {65536});
      UnaryKernel::Args args;
      args.op = op;
      args.compute = DType::kF32;
      args.x = x;
      args.y = y;
      compare_devices<UnaryKernel>(say(number, dtype, in_order(65536)), args,
                                   unary_tolerance(op, DType::kF32, y_dtype, in_order(65536)));
    }
  }
}

TEST_CASE("unary: every layout") {
  for (DType dtype : kAllDTypes) {
    for (std::int64_t n : testing::kLengths) {
      compare_unary(UnaryOp::kSquare, dtype, dtype, in_order(n));
      compare_unary(UnaryOp::kSquare, dtype, dtype, in_order(n, 1));
    }
    for (const Layouts& layouts : strided_layouts())
      compare_unary(UnaryOp::kSquare, dtype, dtype, layouts);
  }
}

TEST_CASE("unary: in place") {
  for (DType dtype : kAllDTypes) {
    for (const Layouts& layouts : {in_order(2061), in_order(2061, 3), strided_layouts()[8]}) {
      UnaryKernel::Args args;
      args.op = UnaryOp::kRelu;
      args.compute = compute_of(dtype);
      const HostTensor x = numbers_of(dtype, layouts, layouts.y, 1);
      args.x = x;
      args.y = x;
      compare_devices<UnaryKernel>("in place, " + say(0, dtype, layouts), args);
    }
  }
}

// ---- binary ------------------------------------------------------------------------------------

constexpr bool is_comparison(BinaryOp op) {
  return op >= BinaryOp::kEq && op <= BinaryOp::kLogicalXor;
}

Tolerance binary_tolerance(BinaryOp op, DType compute, DType y_dtype, const Layouts& layouts) {
  if (op == BinaryOp::kPolygamma) return {.rtol = testing::last_bit(y_dtype).rtol};
  if (compute == DType::kF32 && op == BinaryOp::kSoftplusBackward)
    return rounded_to(y_dtype, layouts);
  if (compute == DType::kF32 && (op == BinaryOp::kGeluBackward || op == BinaryOp::kSiluBackward ||
                                 op == BinaryOp::kGeluTanhBackward))
    return rounded_slope(y_dtype, layouts);
  const bool of_library = op == BinaryOp::kAtan2 || op == BinaryOp::kHypot ||
                          op == BinaryOp::kLogAddExp || op == BinaryOp::kLogAddExp2 ||
                          op == BinaryOp::kXlogy;
  const bool library = op == BinaryOp::kPow || (compute == DType::kF64 && of_library) ||
                       (compute == DType::kF64 &&
                        (op == BinaryOp::kGeluBackward || op == BinaryOp::kGeluTanhBackward ||
                         op == BinaryOp::kSiluBackward || op == BinaryOp::kSoftplusBackward));
  if (!library || !is_floating(y_dtype)) return {};
  Tolerance tolerance = testing::last_bit(y_dtype);
  if (op != BinaryOp::kPow) tolerance = {.rtol = 1e-12, .atol = 1e-13};  // sums of such terms
  return tolerance;
}

struct Dtypes {
  DType a, b, y;
};

void compare_binary(BinaryOp op, const Dtypes& dtypes, const Layouts& layouts) {
  BinaryKernel::Args args;
  args.op = op;
  const DType leading = is_floating(dtypes.b) ? dtypes.b : dtypes.a;
  args.compute = compute_of(dtypes.y == DType::kBool ? leading : dtypes.y);
  const HostTensor a = numbers_of(dtypes.a, layouts, layouts.a, 1);
  const HostTensor b = numbers_of(dtypes.b, layouts, layouts.b, 2);
  const HostTensor y = tensor_of(dtypes.y, layouts, layouts.y);
  args.a = a.const_view();
  args.b = b.const_view();
  if (op == BinaryOp::kPolygamma) {
    args.a = 2.0;  // an order
    args.compute = DType::kF64;
  }
  args.y = y;
  compare_devices<BinaryKernel>(say(static_cast<int>(op), dtypes.a, layouts), args,
                                binary_tolerance(op, args.compute, dtypes.y, layouts));
}

template <class C>
bool takes(BinaryOp op) {
  bool result = false;
  with_functor<functors::Binary>(op, [&]<class F>(F) { result = kTakes<F, C, 2>; });
  return result;
}

TEST_CASE("binary: every operation of every dtype that it takes") {
  for (int number = 0; number < static_cast<int>(BinaryOp::kCount); ++number) {
    const auto op = static_cast<BinaryOp>(number);
    for (const Layouts& layouts : kTwoLayouts) {
      for (DType dtype : kAllDTypes) {
        const DType y = is_comparison(op) ? DType::kBool : dtype;
        if (is_floating(dtype) ? takes<double>(op) : takes<std::int64_t>(op))
          compare_binary(op, {dtype, dtype, y}, layouts);
      }
    }
  }
}

TEST_CASE("binary: every layout, and operands of different dtypes") {
  const Dtypes mixes[] = {
      {DType::kF32, DType::kF32, DType::kF32},  {DType::kBF16, DType::kBF16, DType::kBF16},
      {DType::kF16, DType::kF16, DType::kF16},  {DType::kF32, DType::kBF16, DType::kF32},
      {DType::kF16, DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBool, DType::kBF16},
      {DType::kI32, DType::kF32, DType::kF32},  {DType::kF64, DType::kF32, DType::kF64},
      {DType::kU8, DType::kI64, DType::kI64}};
  for (const Dtypes& dtypes : mixes) {
    for (std::int64_t n : testing::kLengths) {
      compare_binary(BinaryOp::kAdd, dtypes, in_order(n));
      compare_binary(BinaryOp::kAdd, dtypes, in_order(n, 1));
    }
    compare_binary(BinaryOp::kAdd, dtypes, in_order(1030, 2));
    compare_binary(BinaryOp::kAdd, dtypes, in_order(1030, 4));
    for (const Layouts& layouts : strided_layouts())
      compare_binary(BinaryOp::kAdd, dtypes, layouts);
  }
}

TEST_CASE("binary: a number on either side, and in place") {
  for (DType dtype : kAllDTypes) {
    for (const Layouts& layouts : {in_order(2061), in_order(1025, 1), strided_layouts()[9]}) {
      BinaryKernel::Args args;
      args.op = BinaryOp::kSub;
      args.compute = compute_of(dtype);
      const HostTensor x = numbers_of(dtype, layouts, layouts.y, 1);
      args.y = x;
      args.a = x.const_view();
      args.b = 3.0;
      compare_devices<BinaryKernel>("x -= 3, " + say(0, dtype, layouts), args);
      args.a = 3.0;
      args.b = x.const_view();
      compare_devices<BinaryKernel>("x = 3 - x, " + say(0, dtype, layouts), args);
    }
  }
}

// x op number, for all numbers x of 16 bits, and some in f32.
void compare_with_number(BinaryOp op, DType dtype, double number, Tolerance tolerance) {
  const HostTensor x = is_half(dtype) ? every_number(dtype)
                                      : testing::with_numbers(HostTensor(dtype, {65536}), dtype, 1);
  const HostTensor y(is_comparison(op) ? DType::kBool : dtype, {65536});
  BinaryKernel::Args args;
  args.op = op;
  args.compute = DType::kF32;
  args.a = x.const_view();
  args.b = number;
  args.y = y;
  compare_devices<BinaryKernel>(
      say(static_cast<int>(op), dtype, in_order(65536)) + " and " + std::to_string(number), args,
      tolerance);
}

TEST_CASE("binary: quotients and comparisons of every number and a number") {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (double number : {0.5, -3.0, 0.0, 1e-30, 1000.0}) {
      for (BinaryOp op :
           {BinaryOp::kFloorDivide, BinaryOp::kRemainder, BinaryOp::kEq, BinaryOp::kNe,
            BinaryOp::kLt, BinaryOp::kLe, BinaryOp::kGt, BinaryOp::kGe})
        compare_with_number(op, dtype, number, {});
    }
  }
}

TEST_CASE("binary: powers of every number") {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Tolerance tolerance = is_half(dtype) ? one_unit(dtype) : testing::last_bit(dtype);
    for (double number : {0.0, 2.0, 3.0, 0.5, -0.5, -1.0, -3.0, 1.7, 60.0, 0.01})
      compare_with_number(BinaryOp::kPow, dtype, number, tolerance);
  }
}

TEST_CASE("binary: more tiles than a grid has blocks") {
  compare_binary(BinaryOp::kMul, {DType::kBF16, DType::kBF16, DType::kBF16},
                 in_order(4096 * 2048 + 4099));
}

// ---- ternary -----------------------------------------------------------------------------------

void compare_ternary(TernaryOp op, DType dtype, const Layouts& layouts, bool numbers) {
  TernaryKernel::Args args;
  args.op = op;
  args.compute = compute_of(dtype);
  args.factor = is_floating(dtype) ? 0.3 : 3;
  const DType first = op == TernaryOp::kWhere ? DType::kBool : dtype;
  const HostTensor a = numbers_of(first, layouts, layouts.a, 1);
  const HostTensor b = numbers_of(dtype, layouts, layouts.b, 2);
  const HostTensor c = numbers_of(dtype, layouts, layouts.y, 3);
  const HostTensor y = tensor_of(dtype, layouts, layouts.y);
  args.a = a.const_view();
  args.b = numbers ? Operand(-2.0) : Operand(b.const_view());
  args.c = numbers ? Operand(3.0) : Operand(c.const_view());
  args.y = y;
  compare_devices<TernaryKernel>(say(static_cast<int>(op), dtype, layouts), args);
  if (numbers) return;
  args.y = c;
  compare_devices<TernaryKernel>("in place, " + say(static_cast<int>(op), dtype, layouts), args);
}

TEST_CASE("ternary: a choice between a tensor and a number") {
  for (DType dtype : kFloating) {
    for (const Layouts& layouts : {in_order(1025), in_order(1025, 1), strided_layouts()[9]}) {
      TernaryKernel::Args args;
      args.op = TernaryOp::kWhere;
      args.compute = compute_of(dtype);
      const HostTensor condition = numbers_of(DType::kBool, layouts, layouts.a, 1);
      const HostTensor x = numbers_of(dtype, layouts, layouts.b, 2);
      const HostTensor y = tensor_of(dtype, layouts, layouts.y);
      args.a = condition.const_view();
      args.y = y;
      args.b = x.const_view();
      args.c = 3.0;
      compare_devices<TernaryKernel>("x or 3, " + say(0, dtype, layouts), args);
      args.b = 3.0;
      args.c = x.const_view();
      compare_devices<TernaryKernel>("3 or x, " + say(0, dtype, layouts), args);
    }
  }
}

bool takes_integers(TernaryOp op) {
  bool result = false;
  with_functor<functors::Ternary>(op, [&]<class F>(F) { result = kTakes<F, std::int64_t, 4>; });
  return result;
}

TEST_CASE("ternary: every operation of every dtype and layout") {
  for (int number = 0; number < static_cast<int>(TernaryOp::kCount); ++number) {
    const auto op = static_cast<TernaryOp>(number);
    for (DType dtype : kAllDTypes) {
      if (!is_floating(dtype) && !takes_integers(op)) continue;
      for (std::int64_t n : {3, 1025, 2048}) compare_ternary(op, dtype, in_order(n), false);
      compare_ternary(op, dtype, in_order(1025, 1), false);
      compare_ternary(op, dtype, in_order(1025), true);
      for (const Layouts& layouts : strided_layouts()) compare_ternary(op, dtype, layouts, false);
    }
  }
}

}  // namespace
}  // namespace tessera
