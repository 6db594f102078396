#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/cpu/power.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void BinaryKernel::cpu(const Args& args, Workspace) {
  with_compute_type(args.compute, [&]<class C>() {
    with_functor<functors::Binary>(args.op, [&]<class F>(F f) {
      // The operation chose a compute type that the functor accepts.
      if constexpr (std::is_same_v<C, float> && cpu::kIsSlopeLookedUp<F>) {
        if (!args.b.is_number() && cpu::is_looked_up(args.b.view.dtype, args.b.view.numel())) {
          const auto slope = [f](float x) { return f(1.0f, x); };
          const cpu::Input slopes(args.b.view, cpu::values_of(args.b.view.dtype, slope));
          return cpu::map<float>(
              args.y, [](float dy, float by) { return dy * by; }, args.a, slopes);
        }
      }
      if constexpr (std::is_same_v<C, float> && std::is_same_v<F, functors::Pow>) {
        if (args.b.is_number() && cpu::map_power(args.y, args.a, args.b.number)) return;
      }
      if constexpr (kTakes<F, C, 2>) {
        cpu::map<C>(args.y, f, args.a, args.b);
      }
    });
  });
}

}  // namespace tessera
