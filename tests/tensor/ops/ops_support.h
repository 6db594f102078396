#pragma once

// Shared by the tests of operations: values, layouts, distances and thread counts.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {

// thrown(), for errors that a kernel finds: on a GPU the next wait throws.
template <class E, class Body>
std::string thrown_by_kernel(Body&& body) {
  return thrown<E>([&] {
    body();
    current_stream(default_device()).synchronize();
  });
}

// `count` numbers in [low, high), irregular but always the same.
template <class T = double>
std::vector<T> spread(std::int64_t count, double low = -2, double high = 2) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::uint64_t state = 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(count);
  for (T& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<T>(low + (high - low) * static_cast<double>(state >> 11) * 0x1p-53);
  }
  return values;
}

template <class T>
Tensor spread_tensor(const Shape& shape, double low = -2, double high = 2) {
  return Tensor::from_vector(spread<T>(shape.numel(), low, high), shape);
}

// Tensors with the elements of `x` in several layouts: contiguous, inside a larger one, transposed
// storage, a step of 2 in the last dim.
inline std::vector<Tensor> layouts(const Tensor& x) {
  std::vector<Tensor> out = {x};
  if (x.ndim() == 0) return out;
  Shape wider = x.shape();
  wider[x.ndim() - 1] += 3;
  const Tensor frame = Tensor::empty(wider, x.options());
  out.push_back(frame.slice(-1, 2, 2 + x.dim(-1)));
  Shape swapped = x.shape();
  std::swap(swapped[0], swapped[x.ndim() - 1]);
  out.push_back(Tensor::empty(swapped, x.options()).transpose(0, -1));
  Shape doubled = x.shape();
  doubled.push_back(2);
  out.push_back(Tensor::empty(doubled, x.options()).select(-1, 1));
  for (std::size_t i = 1; i < out.size(); ++i) copy_(out[i], x);
  return out;
}

// The names of the kernels that `body` launches.
template <class Body>
std::vector<std::string> kernels_of(Body&& body) {
  ExecutionTrace trace;
  {
    const TraceScope scope(trace);
    body();
  }
  std::vector<std::string> names;
  for (const KernelRecord& record : trace.all<KernelRecord>()) names.push_back(record.name);
  return names;
}

// a - b| in ulps of b rounded to T.
template <class T>
double ulps(T a, double exact) {
  const T b = static_cast<T>(exact);
  if (a == b || (std::isnan(a) && std::isnan(exact))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const T magnitude = std::max(std::abs(b), std::numeric_limits<T>::min());
  const double unit =
      static_cast<double>(std::nextafter(magnitude, std::numeric_limits<T>::infinity())) -
      static_cast<double>(magnitude);
  return std::abs(static_cast<double>(a) - exact) / unit;
}

// The distance in f64 that a function may have on the default device, if it is `on_cpu` there. CUDA's
// functions are up to one unit in the last place farther off than the C library's, those that are
// rounded exactly not (the table of errors in CUDA's programming guide).
inline double f64_ulps(double on_cpu) {
  return default_device().is_cuda() && on_cpu >= 1 ? on_cpu + 1 : on_cpu;
}

template <std::floating_point T>
bool within_ulps(const std::vector<T>& got, const std::vector<T>& expected, double most) {
  if (got.size() != expected.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = got[i] != got[i] && expected[i] != expected[i];
    if (got[i] != expected[i] && !both_nan &&
        !(ulps(got[i], static_cast<double>(expected[i])) <= most))
      return false;
  }
  return true;
}

// True if all bits are equal, also for NaN and the sign of 0.
inline bool same_bits(const std::vector<bool>& a, const std::vector<bool>& b) { return a == b; }
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint8_t>>;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](T x, T y) { return std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y); });
}

// The elements' bytes in row-major order, for bitwise comparison of any dtype.
inline std::vector<std::uint8_t> bits_of(const Tensor& x) {
  return dispatch_all(x.dtype(), "bits_of", [&]<class T>() {
    const std::vector<T> values = x.to_vector<T>();
    std::vector<std::uint8_t> bytes;
    for (T value : values) {
      std::array<std::uint8_t, sizeof(T)> raw;
      std::memcpy(raw.data(), &value, sizeof(T));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    }
    return bytes;
  });
}

// `body()` under a thread budget.
template <class Body>
auto with_threads(int threads, Body&& body) {
  RankScope scope(std::make_shared<RankContext>(-1, 1, threads));
  return body();
}

// True when `body()`, which returns a vector, gives equal bits with 1, 2 and 3 threads.
template <class Body>
bool same_for_any_threads(Body&& body) {
  const auto one = with_threads(1, body);
  return same_bits(one, with_threads(2, body)) && same_bits(one, with_threads(3, body));
}

}  // namespace tessera::testing
