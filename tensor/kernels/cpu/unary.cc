#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

void look_up(const UnaryKernel::Args& args, const std::uint16_t* table) {
  const ConstView& x = args.x;
  const View& y = args.y;
  cpu::parallel_walk(cpu::make_traversal(x.shape, x.strides, y.strides),
                     [&](const auto& offsets, const auto& steps, std::int64_t n) {
                       cpu::look_up_run(table, cpu::advance(x.data, x.dtype, offsets[0]), steps[0],
                                        n, cpu::advance(y.data, y.dtype, offsets[1]), steps[1]);
                     });
}

}  // namespace

void UnaryKernel::cpu(const Args& args, Workspace) {
  with_compute_type(args.compute, [&]<class C>() {
    with_functor<functors::Unary>(args.op, [&]<class F>(F f) {
      // The operation chose a compute type that the functor accepts.
      if constexpr (std::is_same_v<C, float> && cpu::kIsLookedUp<F>) {
        if (args.y.dtype == args.x.dtype && cpu::is_looked_up(args.x.dtype, args.x.numel()))
          return look_up(args, cpu::results_of(args.x.dtype, f));
      }
      if constexpr (kTakes<F, C, 1>) {
        cpu::map<C>(args.y, f, args.x);
      }
    });
  });
}

}  // namespace tessera
