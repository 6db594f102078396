#include "tessera/tests/support/close.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace tessera::testing {
namespace {

CloseResult compare_metadata(const Tensor& actual, const Tensor& expected) {
  if (!actual.defined() || !expected.defined())
    return {false, fmt::format("undefined tensor: actual {}, expected {}", actual.defined(),
                               expected.defined())};
  if (actual.dtype() != expected.dtype())
    return {false, fmt::format("dtype {} instead of {}", dtype_name(actual.dtype()),
                               dtype_name(expected.dtype()))};
  if (!(actual.shape() == expected.shape()))
    return {false,
            fmt::format("shape {} instead of {}", actual.shape().str(), expected.shape().str())};
  return {};
}

std::string index_text(const Shape& shape, std::size_t flat) {
  Shape index = shape;
  auto rest = static_cast<std::int64_t>(flat);
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    index[dim] = rest % shape[dim];
    rest /= shape[dim];
  }
  return index.str();
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Difference divided by tolerance; above 1 is too far.
double excess(double a, double b, Tolerance tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(a - b);
  const double allowed = tolerance.atol + tolerance.rtol * std::abs(b);
  if (!std::isfinite(distance)) return HUGE_VAL;
  return allowed > 0 ? distance / allowed : HUGE_VAL;
}

// For messages: the shortest text that identifies the value.
template <class T>
auto number(T value) {
  if constexpr (dtype_of<T> == DType::kBF16 || dtype_of<T> == DType::kF16) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <class T>
CloseResult compare(const Tensor& actual, const Tensor& expected, const Tolerance* tolerance) {
  const std::vector<T> a = actual.to_vector<T>(), b = expected.to_vector<T>();
  std::size_t worst = 0, differing = 0;
  double worst_excess = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (same_bits<T>(a[i], b[i])) continue;
    const double beyond = tolerance == nullptr ? 2
                                               : excess(static_cast<double>(a[i]),
                                                        static_cast<double>(b[i]), *tolerance);
    if (beyond > 1) ++differing;
    if (beyond > worst_excess) {
      worst_excess = beyond;
      worst = i;
    }
  }
  if (differing == 0) return {};
  return {false,
          fmt::format("{} of {} elements differ; {}: {} at {} instead of {}", differing, a.size(),
                      tolerance == nullptr ? "the first" : "the worst", number<T>(a[worst]),
                      index_text(actual.shape(), worst), number<T>(b[worst]))};
}

CloseResult compare_any(const Tensor& actual, const Tensor& expected, const Tolerance* tolerance) {
  if (CloseResult result = compare_metadata(actual, expected); !result) return result;
  return dispatch_all(actual.dtype(), "all_close",
                      [&]<class T>() { return compare<T>(actual, expected, tolerance); });
}

}  // namespace

Tolerance default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {.rtol = 1.3e-6, .atol = 1e-5};
    case DType::kF64:
      return {.rtol = 1e-7, .atol = 1e-7};
    case DType::kBF16:
      return {.rtol = 1.6e-2, .atol = 1e-5};
    case DType::kF16:
      return {.rtol = 1e-3, .atol = 1e-5};
    case DType::kI64:
    case DType::kU8:
    case DType::kI32:
    case DType::kBool:
      break;
  }
  return {.rtol = 0, .atol = 0};
}

CloseResult all_close(const Tensor& actual, const Tensor& expected, Tolerance tolerance) {
  return compare_any(actual, expected, &tolerance);
}

CloseResult all_close(const Tensor& actual, const Tensor& expected) {
  const DType dtype = expected.defined() ? expected.dtype() : DType::kF32;
  return all_close(actual, expected, default_tolerance(dtype));
}

CloseResult all_equal(const Tensor& actual, const Tensor& expected) {
  return compare_any(actual, expected, nullptr);
}

}  // namespace tessera::testing
