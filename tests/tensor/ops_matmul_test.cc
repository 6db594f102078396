#include "tessera/tensor/ops_matmul.h"

#include <catch2/catch.hpp>
#include <thread>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tests/tensor/ops_support.h"
#include "tessera/tests/tensor/throws.h"

namespace tessera {
namespace {

using namespace testing;

template <class T>
constexpr double kTolerance = sizeof(T) == 4
                                  ? 2e-6
                                  : 5e-15;  // per element of the inner dim, of numbers up to 2

// The product in f64, three plain loops.
template <class T>
std::vector<double> slow_product(const std::vector<T>& a, const std::vector<T>& b, std::int64_t m,
                                 std::int64_t n, std::int64_t k) {
  std::vector<double> c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      const double x = a[static_cast<std::size_t>(i * k + p)];
      for (std::int64_t j = 0; j < n; ++j) {
        c[static_cast<std::size_t>(i * n + j)] += x * b[static_cast<std::size_t>(p * n + j)];
      }
    }
  }
  return c;
}

template <class T>
double worst_difference(const Tensor& got, const std::vector<double>& exact) {
  const auto values = got.to_vector<T>();
  REQUIRE(values.size() == exact.size());
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(values[i] - exact[i]));
  return worst;
}

struct Size {
  std::int64_t m, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},      {3, 5, 7},    {1, 33, 65},   {65, 1, 33},
                                  {33, 65, 1},    {64, 64, 64}, {17, 300, 9},  {300, 17, 129},
                                  {257, 259, 31}, {2, 3, 4100}, {130, 10, 513}};

template <class T>
void check_products() {
  for (const auto& [m, n, k] : kSizes) {
    const Tensor a = spread_tensor<T>({m, k}), b = spread_tensor<T>({k, n});
    const auto exact = slow_product(a.template to_vector<T>(), b.template to_vector<T>(), m, n, k);
    for (const Tensor& x : layouts(a)) {
      for (const Tensor& y : layouts(b)) {
        INFO(m << " x " << n << " x " << k << ", strides " << x.strides().str() << " "
               << y.strides().str());
        CHECK(worst_difference<T>(matmul(x, y), exact) <= kTolerance<T> * static_cast<double>(k));
      }
    }
  }
}

TEST_CASE("matmul: odd sizes in every layout") {
  check_products<float>();
  check_products<double>();
}

TEST_CASE("matmul: broadcast operands") {
  const Tensor a = spread_tensor<float>({1, 5}), b = spread_tensor<float>({5, 3});
  const auto row = matmul(a, b).to_vector<float>();
  const auto rows = matmul(a.expand({4, 5}), b).to_vector<float>();
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i] == Approx(row[i % 3]).margin(1e-5));
}

template <class T>
void check_into() {
  const std::int64_t m = 70, n = 300, k = 41;
  const Tensor a = spread_tensor<T>({m, k}), b = spread_tensor<T>({k, n}),
               c = spread_tensor<T>({m, n}, -1, 1);
  const auto product = slow_product(a.template to_vector<T>(), b.template to_vector<T>(), m, n, k);
  const auto before = c.template to_vector<T>();
  for (const MatmulIntoOptions& options :
       {MatmulIntoOptions{}, MatmulIntoOptions{.beta = 1}, MatmulIntoOptions{.alpha = 0.5},
        MatmulIntoOptions{.alpha = -2, .beta = 0.25}}) {
    std::vector<double> exact(product.size());
    for (std::size_t i = 0; i < exact.size(); ++i)
      exact[i] = options.alpha * product[i] + options.beta * before[i];
    const Tensor wide = Tensor::empty({m, n + 3}, c.options());
    for (const Tensor& out :
         {clone(c), wide.slice(1, 1, n + 1), clone(c.transpose(0, 1)).transpose(0, 1)}) {
      copy_(out, c);
      matmul_into(out, a, b, options);
      INFO("alpha " << options.alpha << " beta " << options.beta << " strides "
                    << out.strides().str());
      CHECK(worst_difference<T>(out, exact) <= 2 * kTolerance<T> * static_cast<double>(k));
    }
  }
}

TEST_CASE("matmul_into: alpha, beta, rows or columns of unit stride") {
  check_into<float>();
  check_into<double>();
}

TEST_CASE("matmul_into: what lies beside the output stays; beta 0 does not read it") {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor frame = full({5, 9}, 7, {.dtype = dtype});
    const Tensor out = frame.slice(0, 1, 4).slice(1, 2, 7);
    fill_(out, std::numeric_limits<double>::quiet_NaN());
    const auto before = out.version();
    matmul_into(out, ones({3, 2}, {.dtype = dtype}), ones({2, 5}, {.dtype = dtype}), {});
    CHECK(out.version() == before + 1);
    const auto values = cast(frame, DType::kF64).to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool inside = i / 9 >= 1 && i / 9 < 4 && i % 9 >= 2 && i % 9 < 7;
      CHECK(values[i] == (inside ? 2 : 7));
    }
  }
}

TEST_CASE("matmul: empty extents") {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const TensorOptions options{.dtype = dtype};
    CHECK(matmul(zeros({0, 3}, options), zeros({3, 4}, options)).shape() == Shape{0, 4});
    CHECK(matmul(zeros({2, 3}, options), zeros({3, 0}, options)).shape() == Shape{2, 0});
    const Tensor none = matmul(zeros({2, 0}, options), zeros({0, 3}, options));
    CHECK(cast(none, DType::kF64).to_vector<double>() == std::vector<double>(6, 0));
    const Tensor out = full({2, 3}, 4, options);
    matmul_into(out, zeros({2, 0}, options), zeros({0, 3}, options), {.beta = 0.5});
    CHECK(cast(out, DType::kF64).to_vector<double>() == std::vector<double>(6, 2));
  }
}

TEST_CASE("linear: bias, leading dims, empty extents") {
  const Tensor x = spread_tensor<float>({2, 3, 5}), w = spread_tensor<float>({7, 5}),
               b = spread_tensor<float>({7});
  const Tensor plain = matmul(x.view({6, 5}), w.transpose(0, 1));
  const auto expected = add(plain, b).to_vector<float>();
  const Tensor y = linear(x, w, b);
  CHECK(y.shape() == Shape{2, 3, 7});
  const auto values = y.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(values[i] == Approx(expected[i]).margin(1e-5));
  const auto row = linear(x.select(0, 0).select(0, 0), w, b);
  CHECK(row.shape() == Shape{7});
  CHECK(row.to_vector<float>()[6] == Approx(expected[6]).margin(1e-5));
  CHECK(linear(x, w, Tensor()).view({6, 7}).to_vector<float>()[3] ==
        Approx(plain.to_vector<float>()[3]));
  CHECK(linear(zeros({0, 5}), w, b).shape() == Shape{0, 7});
  CHECK(linear(zeros({2, 0}), zeros({3, 0}), ones({3})).to_vector<float>() ==
        std::vector<float>(6, 1));
  CHECK(linear(zeros({2, 3}), zeros({0, 3}), zeros({0})).shape() == Shape{2, 0});
  const Tensor wide = spread_tensor<float>({7, 2}).select(1, 1);  // a bias with a stride
  CHECK(same_bits(linear(x, w, wide).to_vector<float>(),
                  linear(x, w, clone(wide)).to_vector<float>()));
}

TEST_CASE("linear: bias of f64, and over several chunks of the inner dim") {
  const Tensor b = spread_tensor<double>({3});
  const auto values = b.to_vector<double>();
  CHECK(linear(zeros({2, 9}, b.options()), zeros({3, 9}, b.options()), b).to_vector<double>()[4] ==
        values[1]);
  const std::int64_t k = 9000;
  const Tensor y = linear(ones({2, k}), ones({3, k}), ones({3}));
  CHECK(y.to_vector<float>() == std::vector<float>(6, static_cast<float>(k + 1)));
}

TEST_CASE("matmul: equal bits for any number of threads") {
  for (const auto& [m, n, k] :
       {Size{300, 520, 130}, Size{64, 512, 784}, Size{1024, 10, 512}, Size{40, 30, 9000}}) {
    const Tensor a = spread_tensor<float>({m, k}), b = spread_tensor<float>({k, n});
    INFO(m << " x " << n << " x " << k);
    CHECK(same_for_any_threads([&] { return matmul(a, b).to_vector<float>(); }));
    CHECK(same_for_any_threads(
        [&] { return linear(a, clone(b.transpose(0, 1)), Tensor()).to_vector<float>(); }));
    const Tensor a64 = cast(a, DType::kF64), b64 = cast(b, DType::kF64);
    CHECK(same_for_any_threads([&] { return matmul(a64, b64).to_vector<double>(); }));
  }
}

TEST_CASE("matmul: a product of one tile has the bits of one thread") {
  // Left to itself oneDNN shares out the inner dim here, and half of the bits differ. A primitive
  // that was made before has settled that, so each number of threads gets one of its own, by a
  // factor that is exact.
  for (const auto& [m, n, k] : {Size{16, 33, 4096}, Size{10, 64, 2048}}) {
    REQUIRE(matmul_tiles(m, n, k).m == m);
    REQUIRE(matmul_tiles(m, n, k).n == n);
    const Tensor a = spread_tensor<float>({k, m}).transpose(0, 1), b = spread_tensor<float>({k, n});
    const auto product = [&a, &b, shape = Shape{m, n}](int threads, double factor) {
      return with_threads(threads, [&] {
        const Tensor out = Tensor::empty(shape);
        matmul_into(out, a, b, {.alpha = factor});
        return mul(out, 1 / factor).to_vector<float>();
      });
    };
    const auto expected = product(1, 1);
    CHECK(same_bits(product(1, 2), expected));
    CHECK(same_bits(product(2, 4), expected));
    CHECK(same_bits(product(3, 8), expected));
  }
}

TEST_CASE("matmul: ranks as threads may compute at the same time") {
  const Tensor a = spread_tensor<float>({300, 200}), b = spread_tensor<float>({200, 310});
  const auto expected = matmul(a, b).to_vector<float>();
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      RankScope scope(
          std::make_shared<RankContext>(static_cast<int>(rank), 4, 1 + static_cast<int>(rank) % 2));
      // Tensors belong to one thread: each rank reads its own handle of the shared bytes.
      const Tensor x = Tensor::from_vector(spread<float>(300 * 200), {300, 200});
      const Tensor y = Tensor::from_vector(spread<float>(200 * 310), {200, 310});
      for (int i = 0; i < 5; ++i) results[rank] = matmul(x, y).to_vector<float>();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : results) CHECK(same_bits(result, expected));
}

TEST_CASE("matmul_tiles: cover the product, follow the shape only, stay within bounds") {
  for (std::int64_t m : {1, 15, 16, 64, 255, 257, 1024, 5000}) {
    for (std::int64_t n : {1, 10, 300, 784, 4096}) {
      for (std::int64_t k : {1, 64, 784, 10'000}) {
        const MatmulTiles t = matmul_tiles(m, n, k);
        CHECK((t.m >= 1 && t.m <= std::min<std::int64_t>(m, 256)));
        CHECK((t.n >= 1 && t.n <= std::min<std::int64_t>(n, 256)));
        CHECK(t.k == std::min<std::int64_t>(k, 4096));
      }
    }
  }
  const MatmulTiles mlp = matmul_tiles(1024, 512, 784);
  CHECK((mlp.m == 256 && mlp.n == 256));
  const MatmulTiles small = matmul_tiles(64, 64, 64);
  CHECK((small.m == 64 && small.n == 64));
}

TEST_CASE("matmul: scratch is counted, one part per thread and tile") {
  const auto peak = [](int threads) {
    return with_threads(threads, [] {
      const Tensor a = spread_tensor<float>({512, 300}), b = spread_tensor<float>({300, 512});
      matmul(a, b);
      return current_rank_context()->memory().peak()[MemoryCategory::kWorkspace];
    });
  };
  CHECK(peak(1) > 0);
  CHECK(peak(3) == 3 * peak(1));
}

TEST_CASE("matmul: oneDNN is served where it wants more scratch than there is") {
  const Tensor a = spread_tensor<float>({300, 400}), b = spread_tensor<float>({400, 10});
  const Tensor out = zeros({300, 10});
  std::get<CpuEntry<MatmulKernel>>(cpu_table())
      .run({.a = read(a), .b = read(b), .bias = {}, .c = write(out)}, {});
  CHECK(same_bits(out.to_vector<float>(), matmul(a, b).to_vector<float>()));
}

TEST_CASE("matmul and linear: errors") {
  const Tensor a = zeros({2, 3}), i = zeros({2, 3}, {.dtype = DType::kI64});
  CHECK(thrown<InvalidArgument>([&] {
          matmul(a, zeros({4, 2}));
        }) ==
        "[matmul] [2, 3] and [4, 2] do not multiply: inner dims 3 and 4 differ; transpose one?");
  CHECK(thrown<InvalidArgument>([&] { matmul(a, zeros({3})); }) ==
        "[matmul] needs two matrices, got [2, 3] and [3]; reshape or select first");
  CHECK(thrown<InvalidArgument>([&] { matmul(i, i); }) ==
        "[matmul] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] {
          matmul(a, zeros({3, 2}, {.dtype = DType::kF64}));
        }) == "[matmul] operands have dtypes f32 and f64; cast one of them");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 2}), a, zeros({3, 4}), {});
        }) ==
        "[matmul_into] the output has shape [2, 2], the product [2, 4]; pass one of that shape");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 4, 2}).select(2, 0), a, zeros({3, 4}), {});
        }) ==
        "[matmul_into] the output [2, 4] with strides [8, 2] has neither rows nor columns of unit "
        "stride; pass a "
        "contiguous one");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(Tensor(), a, zeros({3, 4}), {});
        }) == "[matmul_into] the output is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          linear(a, zeros({5, 4}), Tensor());
        }) == "[linear] x [2, 3] has 3 features, weight [5, 4] takes 4; they must agree");
  CHECK(thrown<InvalidArgument>([&] {
          linear(a, zeros({5, 3}), zeros({4}));
        }) == "[linear] bias has shape [4], expected [5]");
  CHECK(thrown<InvalidArgument>([&] {
          linear(Tensor::scalar(1), zeros({5, 3}), Tensor());
        }) == "[linear] needs x [..., in] and weight [out, in], got [] and [5, 3]");
}

}  // namespace
}  // namespace tessera
