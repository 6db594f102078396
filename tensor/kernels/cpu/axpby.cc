#include "tessera/tensor/kernels/axpby.h"

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// What alpha * x + beta * y is computed in: integers of 32 bits and more do not fit f32.
DType wider(DType x, DType y) {
  if (!is_floating(x) && !is_floating(y)) return DType::kI64;
  const auto needs_f64 = [](DType dtype) {
    return dtype == DType::kF64 || dtype == DType::kI64 || dtype == DType::kI32;
  };
  return needs_f64(x) || needs_f64(y) ? DType::kF64 : DType::kF32;
}

template <class C>
void run(const AxpbyKernel::Args& a) {
  const C alpha = static_cast<C>(a.alpha), beta = static_cast<C>(a.beta),
          gamma = static_cast<C>(a.gamma);
  const ConstView y = {
      .data = a.y.data, .dtype = a.y.dtype, .shape = a.y.shape, .strides = a.y.strides};
  if (!a.x.defined()) {
    if (a.beta == 0)
      return cpu::map<C>(
          a.y, [](C number) { return number; }, a.gamma);
    return cpu::map<C>(
        a.y, [=](C before) { return beta * before + gamma; }, y);
  }
  if (a.beta != 0) {
    return cpu::map<C>(
        a.y, [=](C x, C before) { return alpha * x + beta * before + gamma; }, a.x, y);
  }
  if (a.alpha == 1 && a.gamma == 0)
    return cpu::map<C>(
        a.y, [](C x) { return x; }, a.x);
  cpu::map<C>(
      a.y, [=](C x) { return alpha * x + gamma; }, a.x);
}

}  // namespace

void AxpbyKernel::cpu(const Args& a, Workspace) {
  const bool is_fill = !a.x.defined() && a.beta == 0;
  // The number has its one conversion at the end, as in a cast.
  if (is_fill && a.y.dtype != DType::kF32) return run<double>(a);
  const DType x = a.x.defined() ? a.x.dtype : a.y.dtype;
  with_compute_type(wider(x, a.y.dtype), [&]<class C>() { run<C>(a); });
}

}  // namespace tessera
