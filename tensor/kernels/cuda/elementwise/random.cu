#include "tessera/tensor/kernels/random.h"

#include <cmath>
#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/draws.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

// T is the type in which numbers are drawn.
template <class T>
struct Rule {
  Distribution distribution;
  std::uint64_t key;
  std::int64_t first_position;
  T offset;
  T scale;
  // For truncated normals, in f64 also for f32: the tails of the distribution need it.
  double wide_offset, wide_scale, low, high, below, inside;
  std::uint64_t range;
};

template <class T>
__device__ __forceinline__ T truncated(const Rule<T>& rule, T u) {
  const double x = random::normal_quantile(rule.below + rule.inside * static_cast<double>(u));
  const double bounded = x < rule.low ? rule.low : x > rule.high ? rule.high : x;
  return static_cast<T>(scalar::fma(bounded, rule.wide_scale, rule.wide_offset));
}

template <class T>
__device__ __forceinline__ random::Numbers<T> numbers_of(const Rule<T>& rule,
                                                         const random::Words& words) {
  random::Numbers<T> out;
  constexpr int kCount = random::kNumbersPerBlock<T>;
  if constexpr (std::is_integral_v<T>) {
    // The upper half of a 128-bit product: as uniform as 64 random bits allow.
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const std::uint64_t bits = (std::uint64_t{words.w[2 * i]} << 32) | words.w[2 * i + 1];
      out.n[i] = rule.offset + static_cast<T>(cuda::upper_product(bits, rule.range));
    }
  } else {
    out = rule.distribution == Distribution::kNormal ? random::normals(words, T{})
                                                     : random::uniforms(words, T{});
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T x = out.n[i];
      if (rule.distribution == Distribution::kBernoulli) {
        out.n[i] = x < rule.scale ? T(1) : T(0);
      } else if (rule.distribution == Distribution::kTruncatedNormal) {
        out.n[i] = truncated(rule, x);
      } else {
        out.n[i] = scalar::fma(x, rule.scale, rule.offset);
      }
    }
  }
  return out;
}

template <class T>
__global__ void __launch_bounds__(cuda::kThreads)
    random_fill_kernel(const __grid_constant__ cuda::MapWork<T, 1> work,
                       const __grid_constant__ Rule<T> rule) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    T values[cuda::kGroup<T>];
    cuda::draw_part<T>(work.runs, 0, part, rule.first_position, values, [&](std::uint64_t block) {
      return numbers_of(rule, random::philox(rule.key, block));
    });
    cuda::store_result(work, part, values);
  });
}

template <class T>
void fill(CudaStream stream, const RandomFillKernel::Args& a) {
  Rule<T> rule = {};
  rule.distribution = a.distribution;
  rule.key = a.key;
  rule.first_position = a.first_position;
  rule.offset = static_cast<T>(a.offset);
  rule.scale = static_cast<T>(a.scale);
  rule.wide_offset = a.offset;
  rule.wide_scale = a.scale;
  rule.low = a.low;
  rule.high = a.high;
  rule.below = scalar::normal(a.low).cdf;
  rule.inside = scalar::normal(a.high).cdf - rule.below;
  rule.range = a.range;
  const auto work =
      cuda::map_work<T, 1>(a.y, {cuda::MapInput::positions(a.first_position, a.position_strides)});
  cuda::start(RandomFillKernel::kName, random_fill_kernel<T>, cuda::grid_of(work.runs), stream,
              work, rule);
}

}  // namespace

void RandomFillKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  if (a.distribution == Distribution::kIntegers) return fill<std::int64_t>(stream, a);
  with_floating_type(a.y.dtype, [&]<class T>() { fill<T>(stream, a); });
}

namespace {

template <class C>
struct DropoutRule {
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
    dropout_kernel(const __grid_constant__ cuda::MapWork<C, 2> work, const DropoutRule<C> rule) {
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

// The same for operands that are contiguous, as their positions are: a run of 8 elements has two blocks of
// random words.
struct PackedDropout {
  const void* x;
  void* y;
  std::int64_t numel;
  std::uint64_t key;
  std::uint64_t first_block;
  std::uint32_t limit;  // of the 24 bits that make a uniform number: kept from there on
  float scale;

  __device__ __forceinline__ float apply(float x, std::uint32_t word) const {
    return word >> 8 >= limit ? x * scale : 0.0f;
  }
};

template <class T>
__global__ void __launch_bounds__(cuda::kThreads)
    packed_dropout_kernel(const __grid_constant__ PackedDropout work) {
  constexpr int kRun = 8, kBlock = 4;
  using Run = cuda::Run<T, kRun>;
  const std::int64_t run = cuda::thread_index(), runs = work.numel / kRun;
  if (run < runs) {
    auto values = static_cast<const Run*>(work.x)[run];
    const std::uint64_t block =
        work.first_block + static_cast<std::uint64_t>(run) * (kRun / kBlock);
#pragma unroll
    for (int b = 0; b < kRun / kBlock; ++b) {
      const random::Words words = random::philox(work.key, block + static_cast<unsigned>(b));
#pragma unroll
      for (int k = 0; k < kBlock; ++k) {
        T& value = values.values[kBlock * b + k];
        value = T(work.apply(static_cast<float>(value), words.w[k]));
      }
    }
    static_cast<Run*>(work.y)[run] = values;
  }
  // The elements after the last run.
  const std::int64_t rest = runs * kRun + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && rest < work.numel) {
    const random::Words words =
        random::philox(work.key, work.first_block + static_cast<std::uint64_t>(rest) / kBlock);
    const auto low = rest % 2 == 0 ? words.w[0] : words.w[1],
               high = rest % 2 == 0 ? words.w[2] : words.w[3];
    const auto x = static_cast<float>(static_cast<const T*>(work.x)[rest]);
    static_cast<T*>(work.y)[rest] = T(work.apply(x, rest % kBlock < 2 ? low : high));
  }
}

// Returns false for launches that the general kernel takes.
bool try_packed(CudaStream stream, const DropoutKernel::Args& a) {
  const bool in_order = is_contiguous(a.y.shape, a.position_strides) && a.first_position % 4 == 0;
  if (!in_order || a.x.dtype != a.y.dtype || !cuda::is_packed(a.y, a.x)) return false;
  const PackedDropout work = {
      .x = a.x.data,
      .y = a.y.data,
      .numel = a.y.numel(),
      .key = a.key,
      .first_block = static_cast<std::uint64_t>(a.first_position) / 4,
      .limit = static_cast<std::uint32_t>(std::ceil(static_cast<double>(threshold(a.p)) * 0x1p24)),
      .scale = static_cast<float>(a.scale)};
  const cuda::Grid grid = {.blocks = static_cast<unsigned>(
                               cuda::pieces_of(work.numel, std::int64_t{8} * cuda::kThreads)),
                           .threads = cuda::kThreads};
  return cuda::with_16_bits(a.y.dtype, [&]<class T>() {
    cuda::start(DropoutKernel::kName, packed_dropout_kernel<T>, grid, stream, work);
  });
}

}  // namespace

void DropoutKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0 || try_packed(stream, a)) return;
  with_floating_type(a.x.dtype, [&]<class C>() {
    const auto work = cuda::map_work<C, 2>(
        a.y, {Operand(a.x), cuda::MapInput::positions(a.first_position, a.position_strides)});
    const DropoutRule<C> rule = {.key = a.key,
                                 .first_position = a.first_position,
                                 .p = threshold(a.p),
                                 .scale = static_cast<C>(a.scale)};
    cuda::start(kName, dropout_kernel<C>, cuda::grid_of(work.runs), stream, work, rule);
  });
}

}  // namespace tessera
