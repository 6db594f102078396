#include "tessera/tensor/kernels/unary.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class T, class F>
void apply(const UnaryKernel::Args& a, F f) {
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  const auto t = cpu::make_traversal(a.y.shape, a.x.strides, a.y.strides);
  cpu::parallel_walk(t, [=](const auto& offsets, const auto& steps, std::int64_t count) {
    const T* from = x + offsets[0];
    T* to = y + offsets[1];
    if (steps[0] == 1 && steps[1] == 1) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = f(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i * steps[1]] = f(from[i * steps[0]]);
    }
  });
}

}  // namespace

void UnaryKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.y.dtype,
                     [&]<class T>() { with_functor(a.op, [&](auto f) { apply<T>(a, f); }); });
}

}  // namespace tessera
