#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void TernaryKernel::cpu(const Args& args, Workspace) {
  with_compute_type(args.compute, [&]<class C>() {
    with_functor<functors::Ternary>(args.op, [&]<class F>(F f) {
      // The operation chose a compute type that the functor accepts.
      if constexpr (kTakes<F, C, 4>) {
        const C factor = cpu::number_as<C>(args.factor);
        cpu::map<C>(
            args.y, [=](C a, C b, C c) { return f(a, b, c, factor); }, args.a, args.b, args.c);
      }
    });
  });
}

}  // namespace tessera
