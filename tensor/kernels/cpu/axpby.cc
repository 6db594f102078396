#include "tessera/tensor/kernels/axpby.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// What alpha * x + beta * y is computed in.
template <class X, class Y>
using Wider = std::conditional_t<
    std::is_integral_v<X> && std::is_integral_v<Y>, std::int64_t,
    std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Y, double> ||
                           std::is_same_v<X, std::int64_t> || std::is_same_v<Y, std::int64_t>,
                       double, float>>;

// Truncates and clamps from floating to integer, where a plain cast would be undefined outside the
// range.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kLow = std::numeric_limits<To>::min();
    constexpr auto kHigh = std::numeric_limits<To>::max();
    if (!(value > static_cast<From>(kLow))) return value <= static_cast<From>(kLow) ? kLow : To{0};
    return value >= static_cast<From>(kHigh) ? kHigh : static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class X, class Y, class F>
void map_x(const AxpbyKernel::Args& a, F f) {
  const X* x = a.x.as<X>();
  Y* y = a.y.as<Y>();
  const auto t = cpu::make_traversal(a.y.shape, a.x.strides, a.y.strides);
  cpu::parallel_walk(t, [=](const auto& offsets, const auto& steps, std::int64_t count) {
    const X* from = x + offsets[0];
    Y* to = y + offsets[1];
    if (steps[0] == 1 && steps[1] == 1) {
      for (std::int64_t i = 0; i < count; ++i) f(from[i], to[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) f(from[i * steps[0]], to[i * steps[1]]);
    }
  });
}

template <class Y, class F>
void map_y(const AxpbyKernel::Args& a, F f) {
  Y* y = a.y.as<Y>();
  const auto t = cpu::make_traversal(a.y.shape, a.y.strides);
  cpu::parallel_walk(t, [=](const auto& offsets, const auto& steps, std::int64_t count) {
    Y* to = y + offsets[0];
    if (steps[0] == 1) {
      for (std::int64_t i = 0; i < count; ++i) f(to[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) f(to[i * steps[0]]);
    }
  });
}

template <class Y>
void without_x(const AxpbyKernel::Args& a) {
  if (a.beta == 0) {
    const Y value = convert<Y>(a.gamma);
    return map_y<Y>(a, [=](Y& y) { y = value; });
  }
  using C = Wider<Y, Y>;
  const C beta = static_cast<C>(a.beta), gamma = static_cast<C>(a.gamma);
  map_y<Y>(a, [=](Y& y) { y = convert<Y>(beta * static_cast<C>(y) + gamma); });
}

template <class X, class Y>
void with_x(const AxpbyKernel::Args& a) {
  using C = Wider<X, Y>;
  const C alpha = static_cast<C>(a.alpha), beta = static_cast<C>(a.beta),
          gamma = static_cast<C>(a.gamma);
  if (a.beta != 0) {
    map_x<X, Y>(a, [=](X x, Y& y) {
      y = convert<Y>(alpha * static_cast<C>(x) + beta * static_cast<C>(y) + gamma);
    });
  } else if (a.alpha == 1 && a.gamma == 0) {
    map_x<X, Y>(a, [](X x, Y& y) { y = convert<Y>(x); });
  } else {
    map_x<X, Y>(a, [=](X x, Y& y) { y = convert<Y>(alpha * static_cast<C>(x) + gamma); });
  }
}

}  // namespace

void AxpbyKernel::cpu(const Args& a, Workspace) {
  with_type(a.y.dtype, [&]<class Y>() {
    if (!a.x.defined()) return without_x<Y>(a);
    with_type(a.x.dtype, [&]<class X>() { with_x<X, Y>(a); });
  });
}

}  // namespace tessera
