#include "tessera/tensor/kernels/dropout.h"

#include <cmath>

#include "tessera/tensor/kernels/cuda/elementwise/draws.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"

namespace tessera {
namespace {

template <class C>
struct Rule {
  std::uint64_t key;
  std::int64_t first_position;
  float p;
  C scale;
};

// The f32 uniform numbers of a part's elements.
template <int G, int N>
__device__ __forceinline__ void draw(const cuda::Runs<N>& runs, const cuda::Part& part,
                                     std::uint64_t key, std::int64_t first, float (&out)[G]) {
  cuda::draw_part<float>(runs, 1, part, first, out, [key](std::uint64_t block) {
    return random::uniforms(random::philox(key, block), float{});
  });
}

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    dropout_kernel(const __grid_constant__ cuda::MapWork<C, 2> work, const Rule<C> rule) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    constexpr int G = cuda::kGroup<C>;
    C in[2][G];
    cuda::load_inputs(work, part, in);
    float uniforms[G];
    draw(work.runs, part, rule.key, rule.first_position, uniforms);
#pragma unroll
    for (int k = 0; k < G; ++k) in[0][k] = uniforms[k] >= rule.p ? in[0][k] * rule.scale : C(0);
    cuda::store_result(work, part, in[0]);
  });
}

// The smallest f32 that is at least p: it keeps the same elements as p itself.
float threshold(double p) {
  const auto nearest = static_cast<float>(p);
  return nearest < p ? std::nextafter(nearest, 2.0f) : nearest;
}

}  // namespace

void DropoutKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  with_floating_type(a.x.dtype, [&]<class C>() {
    const auto work = cuda::map_work<C, 2>(
        a.y, {Operand(a.x), cuda::MapInput::positions(a.first_position, a.position_strides)});
    const Rule<C> rule = {.key = a.key,
                          .first_position = a.first_position,
                          .p = threshold(a.p),
                          .scale = static_cast<C>(a.scale)};
    cuda::start(kName, dropout_kernel<C>, cuda::grid_of(work.runs), stream, work, rule);
  });
}

}  // namespace tessera
