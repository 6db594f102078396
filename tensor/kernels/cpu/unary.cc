#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void UnaryKernel::cpu(const Args& args, Workspace) {
  with_compute_type(args.compute, [&]<class C>() {
    with_functor<functors::Unary>(args.op, [&]<class F>(F f) {
      // The operation chose a compute type that the functor accepts.
      if constexpr (kTakes<F, C, 1>) {
        cpu::map<C>(args.y, f, args.x);
      }
    });
  });
}

}  // namespace tessera
