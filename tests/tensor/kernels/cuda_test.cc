// CUDA kernels against their CPU twins, on memory of the test's own. Needs a GPU.
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "tessera/tensor/kernels/table.h"
#include "tessera/tests/tensor/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

// Memory that CPU and GPU both reach.
template <class T>
class Managed {
 public:
  explicit Managed(const std::vector<T>& values) : size_(values.size()) {
    REQUIRE(cudaMallocManaged(&data_, std::max<std::size_t>(1, size_) * sizeof(T)) == cudaSuccess);
    if (size_ > 0) std::memcpy(data_, values.data(), size_ * sizeof(T));
  }
  ~Managed() { cudaFree(data_); }
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> values() const { return std::vector<T>(data(), data() + size_); }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

struct Layout {
  Shape shape, x_strides, y_strides;
  std::int64_t x_offset = 0;
};

const std::vector<Layout>& unary_layouts() {
  static const std::vector<Layout> layouts = {
      {{100'003}, {1}, {1}},
      {{99'999}, {1}, {1}, 1},  // the second is not aligned for packs
      {{}, {}, {}},
      {{0}, {1}, {1}},
      {{301, 307}, {1, 301}, {307, 1}},
      {{57, 3, 101}, {303, 101, 1}, {1, 57, 171}},
  };
  return layouts;
}

template <class T>
UnaryKernel::Args arguments(const Layout& layout, const Managed<T>& x, const Managed<T>& y,
                            UnaryOp op) {
  return {.x = {.data = x.data() + layout.x_offset,
                .dtype = dtype_of<T>,
                .shape = layout.shape,
                .strides = layout.x_strides},
          .y = {.data = y.data(),
                .dtype = dtype_of<T>,
                .shape = layout.shape,
                .strides = layout.y_strides},
          .op = op};
}

// The largest distance between GPU and CPU.
template <class T>
double worst_ulps(const Layout& layout, UnaryOp op) {
  const bool positive = op == UnaryOp::kLog || op == UnaryOp::kSqrt;
  const Managed<T> x(spread<T>(100'010, positive ? 0.01 : -9, 9));
  const Managed<T> y(std::vector<T>(100'010)), expected(std::vector<T>(100'010));
  UnaryKernel::cuda(nullptr, arguments(layout, x, y, op), {});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  std::get<CpuEntry<UnaryKernel>>(cpu_table()).run(arguments(layout, x, expected, op), {});
  const auto got = y.values(), wanted = expected.values();
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, ulps(got[i], static_cast<double>(wanted[i])));
  return worst;
}

TEST_CASE(
    "unary on CUDA: the bits of the CPU in f32; close in f64, where both use their own libraries") {
  for (const Layout& layout : unary_layouts()) {
    for (int op = 0; op <= static_cast<int>(UnaryOp::kGelu); ++op) {
      INFO("op " << op << " on " << layout.shape.str());
      CHECK(worst_ulps<float>(layout, static_cast<UnaryOp>(op)) == 0);
      CHECK(worst_ulps<double>(layout, static_cast<UnaryOp>(op)) <= 8);
    }
  }
}

}  // namespace
}  // namespace tessera
