#include "tessera/tensor/kernels/random_fill.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/random_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class T, class Draw>
void fill(const RandomFillKernel::Args& a, Draw draw) {
  constexpr int kPerBlock = random::kNumbersPerBlock<T>;
  T* y = a.y.as<T>();
  const T offset = static_cast<T>(a.offset), scale = static_cast<T>(a.scale);
  const std::uint64_t key = a.key;
  const std::int64_t first = a.first_position;
  const auto t = cpu::make_traversal(a.y.shape, a.y.strides, a.position_strides);
  cpu::parallel_walk(t, [=](const auto& offsets, const auto& steps, std::int64_t count) {
    // Neighbours mostly come from one block: it is drawn when the block changes.
    random::Numbers<T> numbers{};
    std::int64_t drawn = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = first + offsets[1] + i * steps[1];
      const std::int64_t block = position / kPerBlock;
      if (block != drawn)
        numbers = draw(random::philox(key, static_cast<std::uint64_t>(block)), T{});
      drawn = block;
      y[offsets[0] + i * steps[0]] = scalar::fma(numbers.n[position % kPerBlock], scale, offset);
    }
  });
}

}  // namespace

void RandomFillKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.y.dtype, [&]<class T>() {
    switch (a.distribution) {
      case Distribution::kUniform:
        return fill<T>(
            a, [](const random::Words& words, T type) { return random::uniforms(words, type); });
      case Distribution::kNormal:
        return fill<T>(
            a, [](const random::Words& words, T type) { return random::normals(words, type); });
    }
  });
}

}  // namespace tessera
