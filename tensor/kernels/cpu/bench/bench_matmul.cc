// The speed of products, as ratios that are comparable between machines:
//
//     tools/bazel run //tensor/kernels/cpu:bench_matmul
//
//     # one thread, a dtype, a group
//     tools/bazel run //tensor/kernels/cpu:bench_matmul -- 1 f32 skinny
//
// f32 and bf16 relative to one oneDNN primitive over the whole product, with the same number of
// threads and prepared arguments; f64 relative to Eigen for x86-64-v3. A ratio above 1 is faster
// than the reference. Both sides of a pair alternate, and the ratio is the median of all pairs, so
// that a busy machine affects both alike.
#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

struct Product {
  std::int64_t batch, m, k, n;
  bool a_transposed = false, b_transposed = false;
};

// The products of models: linear layers have a transposed weight, the gradient of the weight has a
// transposed left operand.
const std::vector<std::pair<const char*, std::vector<Product>>> kGroups = {
    {"square",
     {{1, 64, 64, 64},
      {1, 128, 128, 128},
      {1, 256, 256, 256},
      {1, 512, 512, 512},
      {1, 1024, 1024, 1024},
      {1, 512, 512, 512, false, true},
      {1, 512, 512, 512, true, false}}},
    {"multilayer perceptron",
     {{1, 1024, 784, 512, false, true},
      {1, 512, 784, 512, false, true},
      {1, 64, 784, 512, false, true},
      {1, 512, 1024, 784, true, false},
      {1, 1024, 512, 784}}},
    {"transformer",
     {{1, 512, 256, 1024, false, true},
      {1, 512, 1024, 256, false, true},
      {1, 2048, 384, 1536, false, true},
      {1, 2048, 1536, 384, false, true},
      {1, 1536, 2048, 384, true, false},
      {1, 2048, 1536, 384},
      {1, 512, 384, 8192, false, true}}},
    {"skinny",
     {{1, 1024, 1024, 1, false, true},
      {1, 1024, 512, 8, false, true},
      {1, 1024, 512, 10, false, true},
      {1, 10, 1024, 512, true, false},
      {1, 1024, 10, 512},
      {1, 1, 1024, 1024, false, true},
      {1, 1, 1024, 1024},
      {1, 8, 1024, 1024, false, true}}},
    {"attention",
     {{32, 128, 32, 128, false, true},
      {32, 128, 128, 32},
      {32, 128, 128, 32, true, false},
      {12, 256, 64, 256, false, true},
      {12, 256, 256, 64},
      {64, 64, 16, 64, false, true},
      {256, 16, 16, 16}}}};

Tensor operand(const Product& p, bool left, DType dtype) {
  const bool transposed = left ? p.a_transposed : p.b_transposed;
  std::int64_t rows = left ? p.m : p.k, columns = left ? p.k : p.n;
  if (transposed) std::swap(rows, columns);
  const Tensor x = Tensor::empty({p.batch, rows, columns}, {.dtype = DType::kF32});
  random::fill_uniform(x, {}, random::whole(x.shape()), -1, 1);
  const Tensor y = cast(x, dtype);
  return transposed ? y.transpose(1, 2) : y;
}

// out = a b by one primitive.
class PlainProduct {
 public:
  PlainProduct(const Tensor& a, const Tensor& b, const Tensor& out)
      : engine_(dnnl::engine::kind::cpu, 0) {
    const dnnl::matmul::primitive_desc primitive({desc(a), desc(b), desc(out)}, engine_);
    matmul_ = dnnl::matmul(primitive);
    arguments_ = {{DNNL_ARG_SRC, {desc(a), engine_, a.storage().data()}},
                  {DNNL_ARG_WEIGHTS, {desc(b), engine_, b.storage().data()}},
                  {DNNL_ARG_DST, {desc(out), engine_, out.storage().data()}}};
    stream_ = dnnl::stream(engine_);
  }
  void run() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  static dnnl::memory::desc desc(const Tensor& x) {
    const bool one = x.dim(0) == 1;
    const auto list = [&](const Shape& from) {
      return dnnl::memory::dims(from.begin() + (one ? 1 : 0), from.end());
    };
    const auto type =
        x.dtype() == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    return {list(x.shape()), type, list(x.strides())};
  }

  dnnl::engine engine_;
  dnnl::matmul matmul_;
  dnnl::stream stream_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void multiply_by_eigen(const Tensor& a, const Tensor& b, const Tensor& out) {
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using RowMap = Eigen::Map<Rows, 0, Eigen::OuterStride<>>;
  using ColumnMap = Eigen::Map<Eigen::MatrixXd, 0, Eigen::OuterStride<>>;
  const auto with_map = [](const Tensor& x, std::int64_t index, const auto& body) {
    auto* data = static_cast<double*>(x.storage().data()) + index * x.strides()[0];
    if (x.strides()[2] == 1)
      body(RowMap(data, x.dim(1), x.dim(2), Eigen::OuterStride<>(x.strides()[1])));
    else
      body(ColumnMap(data, x.dim(1), x.dim(2), Eigen::OuterStride<>(x.strides()[2])));
  };
  for (std::int64_t i = 0; i < out.dim(0); ++i) {
    with_map(a, i, [&](const auto& left) {
      with_map(b, i, [&](const auto& right) {
        auto* data = static_cast<double*>(out.storage().data()) + i * out.strides()[0];
        RowMap(data, out.dim(1), out.dim(2), Eigen::OuterStride<>(out.strides()[1])).noalias() =
            left * right;
      });
    });
  }
}

template <class Body>
double seconds(int times, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <class Ours, class Yardstick>
void compare(const Product& p, const Ours& ours, const Yardstick& yardstick) {
  constexpr double kPairSeconds = 4e-4, kAllSeconds = 0.3;
  yardstick();
  ours();
  const double once = seconds(3, yardstick);
  const int times = std::max(1, static_cast<int>(kPairSeconds / once));
  const int pairs = std::clamp(static_cast<int>(kAllSeconds / (2 * once * times)), 11, 301);
  std::vector<double> ratios, own;
  for (int pair = 0; pair < pairs; ++pair) {
    const double theirs = seconds(times, yardstick);
    own.push_back(seconds(times, ours));
    ratios.push_back(theirs / own.back());
  }
  const double flops = 2.0 * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n) *
                       static_cast<double>(p.k);
  const auto show = [](std::int64_t rows, std::int64_t columns, bool transposed) {
    return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]" +
           (transposed ? "^T" : "");
  };
  const std::string what = (p.batch > 1 ? std::to_string(p.batch) + " times " : "") +
                           (p.a_transposed ? show(p.k, p.m, true) : show(p.m, p.k, false)) + " x " +
                           (p.b_transposed ? show(p.n, p.k, true) : show(p.k, p.n, false));
  std::printf("  %-40s %8.1f us  %6.1f GFLOP/s  ratio %.2f\n", what.c_str(), median(own) * 1e6,
              flops / median(own) * 1e-9, median(ratios));
  std::fflush(stdout);
}

void compare_products(DType dtype, const std::string& group) {
  for (const auto& [name, products] : kGroups) {
    if (!group.empty() && group != name) continue;
    std::printf("%s, %s\n", name, dtype_name(dtype));
    for (const Product& p : products) {
      const Tensor a = operand(p, true, dtype), b = operand(p, false, dtype),
                   out = Tensor::empty({p.batch, p.m, p.n}, {.dtype = dtype});
      const auto matrix = [](const Tensor& x) { return x.dim(0) == 1 ? x.squeeze(0) : x; };
      const auto ours = [c = matrix(out), x = matrix(a), y = matrix(b)] {
        matmul_into(c, x, y, {});
      };
      if (dtype == DType::kF64) {
        compare(p, ours, [&] { multiply_by_eigen(a, b, out); });
      } else {
        PlainProduct plain(a, b, out);
        compare(p, ours, [&] { plain.run(); });
      }
    }
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const auto argument = [&](int i) { return std::string(argc > i ? argv[i] : ""); };
  std::printf("%s\n", tessera::cpu_isa_name(tessera::cpu_isa()));
  // oneDNN, the reference, gets the instructions of our kernels.
  if (tessera::cpu_isa() == tessera::CpuIsa::kX86V3) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  for (int threads : {1, 2}) {
    if (!argument(1).empty() && argument(1) != std::to_string(threads)) continue;
    std::printf("---- %d thread%s\n", threads, threads == 1 ? "" : "s");
    const tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, threads));
    omp_set_num_threads(threads);  // of oneDNN
    for (tessera::DType dtype :
         {tessera::DType::kF32, tessera::DType::kBF16, tessera::DType::kF64}) {
      if (argument(2).empty() || argument(2) == tessera::dtype_name(dtype))
        tessera::compare_products(dtype, argument(3));
    }
  }
}
