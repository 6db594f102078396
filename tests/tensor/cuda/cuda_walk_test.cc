// Which thread of a launch has which element, where elements lie, and the axpby kernel's arithmetic
// on the CPU: all that a GPU would do but the launch.
#include <catch2/catch.hpp>
#include <cstring>
#include <tuple>
#include <vector>

#include "tessera/tensor/kernels/axpby.h"
#include "tessera/tensor/kernels/cuda/axpby_element.h"
#include "tessera/tensor/kernels/cuda/walk.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// Runs `f` for every element as the threads of a launch would.
template <class F>
void run_launch(std::int64_t n, F f) {
  const std::int64_t threads = std::int64_t{cuda::blocks_for(n)} * cuda::kThreads;
  for (std::int64_t thread = 0; thread < threads; ++thread) cuda::share(thread, threads, n, f);
}

TEST_CASE("launch shapes: at least one block, never more than fill a GPU") {
  CHECK(cuda::blocks_for(0) == 1);
  CHECK(cuda::blocks_for(1) == 1);
  CHECK(cuda::blocks_for(256) == 1);
  CHECK(cuda::blocks_for(257) == 2);
  CHECK(cuda::blocks_for(256 * 4096) == 4096);
  CHECK(cuda::blocks_for(256 * 4096 + 1) == 4096);
  CHECK(cuda::blocks_for(std::int64_t{1} << 62) == 4096);
}

TEST_CASE("launch shapes: every element is one thread's") {
  for (std::int64_t n : {0, 1, 255, 256, 257, 5000, 256 * 4096 - 1, 256 * 4096 + 3, 2500001}) {
    std::vector<int> visits(static_cast<std::size_t>(n));
    run_launch(n, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
    CHECK(visits == std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

TEST_CASE("walks: offsets of strided elements in row-major order") {
  const Shape shape = {3, 1, 4, 5}, x_strides = {1, 7, 15, 3}, y_strides = {40, 0, 0, 2};
  const cuda::Walk walk = cuda::make_walk(shape, x_strides, y_strides);
  std::int64_t i = 0;
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 4; ++b) {
      for (std::int64_t c = 0; c < 5; ++c, ++i) {
        const cuda::WalkOffsets at = cuda::offsets_at(walk, i);
        CHECK(at.x == a + 15 * b + 3 * c);
        CHECK(at.y == 40 * a + 2 * c);
      }
    }
  }
  const cuda::WalkOffsets none = cuda::offsets_at(cuda::make_walk({}, {}, {}), 0);
  CHECK((none.x == 0 && none.y == 0));
  // Beyond what 32 bits count.
  const std::int64_t far = (std::int64_t{1} << 33) + 5;
  const cuda::WalkOffsets at = cuda::offsets_at(
      cuda::make_walk({4, std::int64_t{1} << 32}, {std::int64_t{1} << 40, 3}, {0, 1}), far);
  CHECK(at.x == (std::int64_t{2} << 40) + 15);
  CHECK(at.y == 5);
}

// ---- axpby, against its CPU twin ----------------------------------------------------------------

struct Layout {
  Shape shape;
  Shape x_strides;
  Shape y_strides;
  std::int64_t x_room;
  std::int64_t y_room;
};

const Layout kLayouts[] = {
    {{}, {}, {}, 1, 1},
    {{0}, {1}, {1}, 1, 1},
    {{777}, {1}, {1}, 777, 777},
    {{33, 17}, {1, 33}, {17, 1}, 33 * 17, 33 * 17},
    {{5, 7, 3}, {0, 3, 1}, {1, 5, 70}, 21, 205},
};

struct Factors {
  double alpha;
  double beta;
};

std::vector<std::byte> elements_of(DType dtype, std::int64_t room, int salt) {
  std::vector<std::byte> out(static_cast<std::size_t>(room) * dtype_size(dtype));
  with_type(dtype, [&]<class T>() {
    T* to = reinterpret_cast<T*>(out.data());
    for (std::int64_t i = 0; i < room; ++i) {
      const double value = static_cast<double>((i * 37 + salt) % 501) * 0.75 - 100;
      to[i] = convert_element<T>(i % 53 == 52 ? value * 1e30 : value);
    }
  });
  return out;
}

template <class C>
void run_as_gpu(const AxpbyKernel::Args& a) {
  cuda::AxpbyWork<C> work;
  work.x = a.x.data;
  work.x_dtype = a.x.dtype;
  work.y = a.y.data;
  work.y_dtype = a.y.dtype;
  work.walk = cuda::make_walk(a.y.shape, a.x.defined() ? a.x.strides : a.y.strides, a.y.strides);
  work.alpha = static_cast<C>(a.alpha);
  work.beta = static_cast<C>(a.beta);
  if (!a.x.defined()) work.number = static_cast<C>(a.number);
  run_launch(a.y.numel(), [&](std::int64_t i) { cuda::axpby_element(work, i); });
}

// Both twins on the same operands; the bytes must agree, those outside of the view too.
void compare(AxpbyKernel::Args args, std::vector<std::byte> y) {
  std::vector<std::byte> gpu_y = y;
  args.y.data = y.data();
  std::get<CpuEntry<AxpbyKernel>>(cpu_table()).run(args, {});
  args.y.data = gpu_y.data();
  with_compute_type(axpby_compute(args), [&]<class C>() { run_as_gpu<C>(args); });
  INFO(dtype_name(args.x.dtype) << " to " << dtype_name(args.y.dtype) << ", shape of "
                                << args.y.shape.ndim() << " dims, alpha " << args.alpha << ", beta "
                                << args.beta << (args.x.defined() ? "" : ", a number"));
  CHECK(std::memcmp(y.data(), gpu_y.data(), y.size()) == 0);
}

TEST_CASE("axpby: an element on the GPU is the CPU's, for every pair of dtypes and layouts") {
  for (DType x_dtype : kAllDTypes) {
    for (DType y_dtype : kAllDTypes) {
      for (const Layout& layout : kLayouts) {
        const std::vector<std::byte> x = elements_of(x_dtype, layout.x_room, 3);
        for (const Factors& factors :
             {Factors{1, 0}, Factors{3, 0}, Factors{2, 1}, Factors{1, 3}}) {
          AxpbyKernel::Args args;
          args.x = {.data = x.data(),
                    .dtype = x_dtype,
                    .shape = layout.shape,
                    .strides = layout.x_strides};
          args.y = {.dtype = y_dtype, .shape = layout.shape, .strides = layout.y_strides};
          args.alpha = factors.alpha;
          args.beta = factors.beta;
          compare(args, elements_of(y_dtype, layout.y_room, 11));
        }
      }
    }
  }
}

TEST_CASE("axpby: fractions as factors round as on the CPU") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const std::vector<std::byte> x = elements_of(dtype, 777, 3);
    AxpbyKernel::Args args;
    args.x = {.data = x.data(), .dtype = dtype, .shape = {777}, .strides = {1}};
    args.y = {.dtype = dtype, .shape = {777}, .strides = {1}};
    args.alpha = 0.3;
    args.beta = -1.7;
    compare(args, elements_of(dtype, 777, 5));
  }
}

TEST_CASE("axpby: a number fills as on the CPU") {
  for (DType dtype : kAllDTypes) {
    for (const Layout& layout : kLayouts) {
      for (double number : {0.0, 1.0, 0.1, 77.0}) {
        AxpbyKernel::Args args;
        args.y = {.dtype = dtype, .shape = layout.shape, .strides = layout.y_strides};
        args.alpha = 0;
        args.number = number;
        compare(args, elements_of(dtype, layout.y_room, 11));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
