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
  const C alpha = static_cast<C>(a.alpha), beta = static_cast<C>(a.beta);
  if (a.beta != 0) {
    const ConstView y = {
        .data = a.y.data, .dtype = a.y.dtype, .shape = a.y.shape, .strides = a.y.strides};
    return cpu::map<C>(
        a.y, [=](C x, C before) { return alpha * x + beta * before; }, a.x, y);
  }
  if (a.alpha == 1)
    return cpu::map<C>(
        a.y, [](C x) { return x; }, a.x);
  cpu::map<C>(
      a.y, [=](C x) { return alpha * x; }, a.x);
}

// In f64 for all but f32, so that the number has its one conversion at the end, as in a cast.
template <class C>
void fill(const AxpbyKernel::Args& a) {
  cpu::map<C>(
      a.y, [](C number) { return number; }, a.number);
}

}  // namespace

void AxpbyKernel::cpu(const Args& a, Workspace) {
  if (!a.x.defined()) return a.y.dtype == DType::kF32 ? fill<float>(a) : fill<double>(a);
  with_compute_type(wider(a.x.dtype, a.y.dtype), [&]<class C>() { run<C>(a); });
}

}  // namespace tessera
