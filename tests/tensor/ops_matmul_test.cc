// Matrix products against plain loops: shapes, layouts, dtypes, batches, what is written where,
// bits.
#include "tessera/tensor/ops_matmul.h"

#include <catch2/catch.hpp>
#include <cmath>
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

constexpr DType kFloating[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

std::vector<double> values(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

Tensor spread_of(DType dtype, const Shape& shape, double low = -2, double high = 2) {
  return cast(spread_tensor<double>(shape, low, high), dtype);
}

// How far a product over k elements of up to 2 in size may be off: every addition rounds, in f32
// where the operands have no more than that, and the result once in its own dtype.
bool is_close(const Tensor& got, const std::vector<double>& exact, DType operands, std::int64_t k) {
  const auto unit = [](DType dtype) {
    switch (dtype) {
      case DType::kF64:
        return 0x1p-53;
      case DType::kBF16:
        return 0x1p-8;
      case DType::kF16:
        return 0x1p-11;
      default:
        return 0x1p-24;
    }
  };
  const double sums =
      (operands == DType::kF64 ? 0x1p-53 : 0x1p-24) * 12 * static_cast<double>(k + 2);
  const std::vector<double> values_got = values(got);
  if (values_got.size() != exact.size()) return false;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double allowed = sums + 1.01 * unit(got.dtype()) * std::abs(exact[i]);
    if (!(std::abs(values_got[i] - exact[i]) <= allowed)) return false;
  }
  return true;
}

// The product in f64, three plain loops.
std::vector<double> slow_product(const Tensor& a, const Tensor& b) {
  const std::int64_t m = a.dim(0), k = a.dim(1), n = b.dim(1);
  const auto x = values(a), y = values(b);
  std::vector<double> c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      for (std::int64_t j = 0; j < n; ++j)
        c[static_cast<std::size_t>(i * n + j)] +=
            x[static_cast<std::size_t>(i * k + p)] * y[static_cast<std::size_t>(p * n + j)];
    }
  }
  return c;
}

struct Size {
  std::int64_t m, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},      {3, 5, 7},    {1, 33, 65},   {65, 1, 33},
                                  {33, 65, 1},    {64, 64, 64}, {17, 300, 9},  {300, 17, 129},
                                  {257, 259, 31}, {2, 3, 4100}, {130, 10, 513}};

TEST_CASE("matmul: odd sizes in every layout and dtype") {
  for (const auto& [m, n, k] : kSizes) {
    for (DType dtype : kFloating) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      const auto exact = slow_product(a, b);
      for (const Tensor& x : layouts(a)) {
        for (const Tensor& y : layouts(b)) {
          INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k << ", strides "
                                 << x.strides().str() << " " << y.strides().str());
          CHECK(is_close(matmul(x, y), exact, dtype, k));
        }
      }
    }
  }
}

TEST_CASE("matmul: several tiles in both directions") {
  for (DType dtype : kFloating) {
    for (const auto& [m, n, k] : {Size{70, 2100, 70}, Size{520, 65, 300}, Size{100, 700, 600}}) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      const auto exact = slow_product(a, b);
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      CHECK(is_close(matmul(a, b), exact, dtype, k));
      CHECK(is_close(matmul(a, clone(b.transpose(0, 1)).transpose(0, 1)), exact, dtype, k));
      CHECK(is_close(matmul(clone(a.transpose(0, 1)).transpose(0, 1), b), exact, dtype, k));
    }
  }
}

// The product of the matrices at `index` of two broadcast batches, one after another.
std::vector<double> slow_batch(const Tensor& a, const Tensor& b, const Shape& batch) {
  const auto wide = [&](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.dim(-2));
    shape.push_back(x.dim(-1));
    return clone(x.expand(shape)).view({batch.numel(), x.dim(-2), x.dim(-1)});
  };
  const Tensor left = wide(a), right = wide(b);
  std::vector<double> all;
  for (std::int64_t i = 0; i < batch.numel(); ++i) {
    const auto one = slow_product(left.select(0, i), right.select(0, i));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

TEST_CASE("matmul: batches, broadcast either way, in every layout") {
  struct Case {
    Shape a, b, batch;
  };
  const std::vector<Case> cases = {{{4, 3, 5}, {4, 5, 2}, {4}},
                                   {{3, 5}, {4, 5, 2}, {4}},
                                   {{4, 3, 5}, {5, 2}, {4}},
                                   {{2, 1, 3, 5}, {4, 5, 2}, {2, 4}},
                                   {{2, 3, 4, 1}, {2, 3, 1, 5}, {2, 3}},
                                   {{1, 3, 70}, {3, 70, 33}, {3}},
                                   {{3, 1, 1, 7}, {3, 2, 7, 1}, {3, 2}},
                                   {{5, 2, 3, 4}, {4, 6}, {5, 2}}};
  for (const auto& [a_shape, b_shape, batch] : cases) {
    for (DType dtype : kFloating) {
      const Tensor a = spread_of(dtype, a_shape), b = spread_of(dtype, b_shape);
      const auto exact = slow_batch(a, b, batch);
      Shape shape = batch;
      shape.push_back(a.dim(-2));
      shape.push_back(b.dim(-1));
      for (const Tensor& x : layouts(a)) {
        for (const Tensor& y : layouts(b)) {
          INFO(dtype_name(dtype) << a_shape.str() << b_shape.str() << x.strides().str()
                                 << y.strides().str());
          const Tensor c = matmul(x, y);
          CHECK(c.shape() == shape);
          CHECK(is_close(c, exact, dtype, a.dim(-1)));
        }
      }
    }
  }
}

TEST_CASE("matmul: heads of attention, as they lie in memory") {
  for (DType dtype : kFloating) {
    const Tensor q = spread_of(dtype, {2, 7, 3, 5}).transpose(1, 2),
                 k = spread_of(dtype, {2, 7, 3, 5}, -1, 1).transpose(1, 2);
    const Tensor scores = matmul(q, k.transpose(2, 3));
    CHECK(scores.shape() == Shape{2, 3, 7, 7});
    CHECK(is_close(scores, slow_batch(q, k.transpose(2, 3), {2, 3}), dtype, 5));
  }
}

TEST_CASE("matmul: the bits of a product do not depend on its batch") {
  for (DType dtype : kFloating) {
    for (const auto& [m, n, k] :
         {Size{16, 16, 16}, Size{33, 20, 700}, Size{1, 9, 5}, Size{9, 1, 5}}) {
      const Tensor a = spread_of(dtype, {23, m, k}), b = spread_of(dtype, {23, k, n});
      const Tensor all = matmul(a, b);
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      for (std::int64_t i : {0, 7, 22})
        CHECK(bits_of(all.select(0, i)) == bits_of(matmul(a.select(0, i), b.select(0, i))));
      CHECK(bits_of(all.slice(0, 5, 16)) == bits_of(matmul(a.slice(0, 5, 16), b.slice(0, 5, 16))));
    }
  }
}

TEST_CASE("matmul: vectors") {
  for (DType dtype : kFloating) {
    const Tensor v = spread_of(dtype, {5}), a = spread_of(dtype, {3, 5}),
                 b = spread_of(dtype, {2, 5, 4});
    const Tensor product = matmul(a, v), row = matmul(v, b), number = matmul(v, v);
    CHECK(product.shape() == Shape{3});
    CHECK(is_close(product, slow_product(a, v.unsqueeze(1)), dtype, 5));
    CHECK(row.shape() == Shape{2, 4});
    CHECK(is_close(row, slow_batch(v.unsqueeze(0), b, {2}), dtype, 5));
    CHECK(number.shape() == Shape{});
    CHECK(is_close(number, slow_product(v.unsqueeze(0), v.unsqueeze(1)), dtype, 5));
    CHECK(matmul(b.transpose(1, 2), v).shape() == Shape{2, 4});
    CHECK(values(mv(a, v)) == values(product));
    CHECK(values(dot(v, v)) == values(number));
    const Tensor u = spread_of(dtype, {3});
    CHECK(values(outer(u, v)) == values(mul(u.unsqueeze(1), v.unsqueeze(0))));
    CHECK(values(bmm(b.transpose(1, 2), b)) == values(matmul(b.transpose(1, 2), b)));
  }
}

TEST_CASE("matmul: broadcast operands") {
  const Tensor a = spread_tensor<float>({1, 5}), b = spread_tensor<float>({5, 3});
  const auto row = matmul(a, b).to_vector<float>();
  const auto rows = matmul(a.expand({4, 5}), b).to_vector<float>();
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i] == Approx(row[i % 3]).margin(1e-5));
}

const std::vector<MatmulIntoOptions> kFactors = {
    {}, {.beta = 1}, {.alpha = 0.5}, {.alpha = -2, .beta = 0.25}};

TEST_CASE(
    "matmul_into: alpha, beta, every dtype into every other, rows or columns of unit stride") {
  const std::int64_t m = 70, n = 300, k = 41;
  for (DType from : kFloating) {
    const Tensor a = spread_of(from, {m, k}), b = spread_of(from, {k, n});
    const auto product = slow_product(a, b);
    for (DType to : kFloating) {
      const Tensor c = spread_of(to, {m, n}, -1, 1);
      const auto before = values(c);
      for (const MatmulIntoOptions& options : kFactors) {
        std::vector<double> exact(product.size());
        for (std::size_t i = 0; i < exact.size(); ++i)
          exact[i] = options.alpha * product[i] + options.beta * before[i];
        const Tensor wide = Tensor::empty({m, n + 3}, c.options());
        for (const Tensor& out :
             {clone(c), wide.slice(1, 1, n + 1), clone(c.transpose(0, 1)).transpose(0, 1)}) {
          copy_(out, c);
          matmul_into(out, a, b, options);
          INFO(dtype_name(from) << " to " << dtype_name(to) << " alpha " << options.alpha
                                << " beta " << options.beta << " strides " << out.strides().str());
          CHECK(is_close(out, exact, from, k));
        }
      }
    }
  }
}

TEST_CASE("matmul_into: batches and columns") {
  for (DType dtype : kFloating) {
    const Tensor a = spread_of(dtype, {3, 4, 6}), b = spread_of(dtype, {3, 6, 5});
    const auto product = slow_batch(a, b, {3});
    const Tensor frame = full({3, 5, 4}, 1, {.dtype = dtype}).transpose(1, 2);
    matmul_into(frame, a, b, {.alpha = 2, .beta = 1});
    auto exact = product;
    for (double& x : exact) x = 2 * x + 1;
    CHECK(is_close(frame, exact, dtype, 6));
    const Tensor column = spread_of(dtype, {6, 1});
    for (const Tensor& out :
         {full({4, 1}, 1, {.dtype = dtype}), full({4, 3}, 1, {.dtype = dtype}).slice(1, 1, 2)}) {
      matmul_into(out, a.select(0, 0), column, {.beta = 1});
      auto sums = slow_product(a.select(0, 0), column);
      for (double& x : sums) x += 1;
      CHECK(is_close(out, sums, dtype, 6));
    }
  }
}

TEST_CASE("matmul_into: products of 16 bits are added to f32 without rounding") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const std::int64_t k = 1000;  // several chunks where tiles are converted
    const Tensor a = spread_of(dtype, {5, k}), b = spread_of(dtype, {k, 7});
    const Tensor out = zeros({5, 7});
    matmul_into(out, a, b, {.beta = 1});
    auto exact = slow_product(a, b);
    CHECK(is_close(out, exact, dtype, k));
    for (double& x : exact) x *= 2;
    matmul_into(out, a, b, {.beta = 1});
    CHECK(is_close(out, exact, dtype, k));
  }
}

TEST_CASE("addmm: broadcast, factors, beta 0") {
  for (DType dtype : kFloating) {
    const Tensor a = spread_of(dtype, {3, 5}), b = spread_of(dtype, {5, 4});
    const auto product = slow_product(a, b);
    for (const Shape& shape : {Shape{}, Shape{4}, Shape{3, 1}, Shape{3, 4}}) {
      const Tensor c = spread_of(dtype, shape);
      const auto added = values(c.expand({3, 4}));
      std::vector<double> exact(product.size());
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = 0.5 * product[i] - 2 * added[i];
      CHECK(is_close(addmm(c, a, b, {.alpha = 0.5, .beta = -2}), exact, dtype, 9));
      CHECK(values(c) == values(spread_of(dtype, shape)));
    }
    const Tensor nothing = full({4}, std::numeric_limits<double>::quiet_NaN(), {.dtype = dtype});
    CHECK(values(addmm(nothing, a, b, {.beta = 0})) == values(matmul(a, b)));
  }
}

TEST_CASE("matmul_into: what lies beside the output stays; beta 0 does not read it") {
  for (DType dtype : kFloating) {
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
  for (DType dtype : kFloating) {
    const TensorOptions options{.dtype = dtype};
    CHECK(matmul(zeros({0, 3}, options), zeros({3, 4}, options)).shape() == Shape{0, 4});
    CHECK(matmul(zeros({2, 3}, options), zeros({3, 0}, options)).shape() == Shape{2, 0});
    CHECK(matmul(zeros({0, 2, 3}, options), zeros({3, 5}, options)).shape() == Shape{0, 2, 5});
    CHECK(matmul(zeros({0}, options), zeros({0, 2}, options)).shape() == Shape{2});
    CHECK(values(matmul(zeros({2, 0}, options), zeros({0, 3}, options))) ==
          std::vector<double>(6, 0));
    CHECK(values(matmul(zeros({2, 2, 0}, options), zeros({0, 3}, options))) ==
          std::vector<double>(12, 0));
    CHECK(values(matmul(zeros({0}, options), zeros({0}, options))) == std::vector<double>{0});
    const Tensor out = full({2, 3}, 4, options);
    matmul_into(out, zeros({2, 0}, options), zeros({0, 3}, options), {.beta = 0.5});
    CHECK(values(out) == std::vector<double>(6, 2));
  }
}

TEST_CASE("matmul: equal bits for any number of threads") {
  for (const auto& [m, n, k] : {Size{300, 520, 130}, Size{64, 512, 784}, Size{1024, 10, 512},
                                Size{40, 30, 9000}, Size{513, 600, 700}}) {
    for (DType dtype : kFloating) {
      const Tensor a = spread_of(dtype, {m, k}), b = spread_of(dtype, {k, n});
      INFO(dtype_name(dtype) << " " << m << " x " << n << " x " << k);
      CHECK(same_for_any_threads([&] { return bits_of(matmul(a, b)); }));
      CHECK(same_for_any_threads(
          [&] { return bits_of(linear(a, clone(b.transpose(0, 1)), Tensor())); }));
    }
  }
  for (DType dtype : kFloating) {
    const Tensor a = spread_of(dtype, {37, 65, 33}), b = spread_of(dtype, {37, 33, 70});
    CHECK(same_for_any_threads([&] { return bits_of(matmul(a, b)); }));
  }
}

TEST_CASE("matmul: a product of one tile has the bits of one thread") {
  // Left to itself oneDNN shares out the inner dim here, and half of the bits differ. A primitive
  // that was made before has settled that, so each number of threads gets a size of its own, in
  // which only rows beyond those compared differ.
  const std::int64_t m = 16, n = 33, k = 4096;
  const Tensor a = spread_tensor<float>({k, m + 3}), b = spread_tensor<float>({k, n});
  const auto product = [&](int threads) {
    return with_threads(threads, [&] {
      const Tensor left = clone(a.slice(1, 0, m + threads)).transpose(0, 1);
      REQUIRE(matmul_tiles(DType::kF32, m + threads, n, k).m == m + threads);
      return matmul(left, b).slice(0, 0, m).to_vector<float>();
    });
  };
  const auto expected = product(1);
  CHECK(same_bits(product(2), expected));
  CHECK(same_bits(product(3), expected));
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

TEST_CASE("matmul_tiles: cover the product, follow shape and dtype only, stay within bounds") {
  for (DType dtype : kFloating) {
    const std::int64_t most_columns = dtype == DType::kF64 ? 256 : 2048;
    for (std::int64_t m : {1, 15, 16, 64, 255, 257, 1024, 5000}) {
      for (std::int64_t n : {1, 10, 300, 784, 4096}) {
        for (std::int64_t k : {0, 1, 64, 784, 10'000}) {
          const MatmulTiles t = matmul_tiles(dtype, m, n, k);
          CHECK((t.m >= 1 && t.m <= std::min<std::int64_t>(m, 256)));
          CHECK((t.n >= 1 && t.n <= std::min<std::int64_t>(n, most_columns)));
        }
      }
    }
  }
  const MatmulTiles mlp = matmul_tiles(DType::kF32, 1024, 512, 784);
  CHECK((mlp.m == 256 && mlp.n == 512));
  const MatmulTiles few_rows = matmul_tiles(DType::kBF16, 64, 512, 784);
  CHECK((few_rows.m == 64 && few_rows.n == 256));
  const MatmulTiles small = matmul_tiles(DType::kF64, 64, 64, 64);
  CHECK((small.m == 64 && small.n == 64));
}

TEST_CASE("matmul: scratch is counted, one part per thread and tile") {
  for (DType dtype : kFloating) {
    const auto peak = [dtype](int threads) {
      return with_threads(threads, [dtype] {
        const Tensor a = zeros({1024, 300}, {.dtype = dtype}),
                     b = zeros({300, 512}, {.dtype = dtype});
        matmul(a, b);
        return current_rank_context()->memory().peak()[MemoryCategory::kWorkspace];
      });
    };
    CHECK(peak(1) > 0);
    CHECK(peak(3) == 3 * peak(1));
  }
}

TEST_CASE("matmul: oneDNN is served where it wants more scratch than there is") {
  const Tensor a = spread_tensor<float>({300, 400}), b = spread_tensor<float>({400, 10});
  const Tensor out = zeros({300, 10});
  std::get<CpuEntry<MatmulKernel>>(cpu_table())
      .run({.a = read(a), .b = read(b), .bias = {}, .before = {}, .c = write(out)}, {});
  CHECK(same_bits(out.to_vector<float>(), matmul(a, b).to_vector<float>()));
}

TEST_CASE("matmul: errors") {
  const Tensor a = zeros({2, 3}), i = zeros({2, 3}, {.dtype = DType::kI64});
  CHECK(thrown<InvalidArgument>([&] {
          matmul(a, zeros({4, 2}));
        }) ==
        "[matmul] [2, 3] and [4, 2] do not multiply: inner dims 3 and 4 differ; transpose one?");
  CHECK(thrown<InvalidArgument>([&] { matmul(a, zeros({4})); }) ==
        "[matmul] [2, 3] and [4] do not multiply: inner dims 3 and 4 differ; transpose one?");
  CHECK(thrown<InvalidArgument>([&] { matmul(a, Tensor::scalar(1)); }) ==
        "[matmul] needs operands of at least 1 dim, got [2, 3] and []; for a number use mul");
  CHECK(thrown<InvalidArgument>([&] {
          matmul(zeros({2, 2, 3}), zeros({4, 3, 2}));
        }) ==
        "[matmul] shapes [2] and [4] do not broadcast: dim 1 counted from the back is 2 and 4; "
        "extents must be equal or 1");
  CHECK(thrown<InvalidArgument>([&] { matmul(i, i); }) ==
        "[matmul] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { matmul(Tensor(), a); }) ==
        "[matmul] the first operand is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          matmul(a, zeros({3, 2}, {.device = kNull}));
        }) == "[matmul] operands are on cpu and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] {
          matmul(a, zeros({3, 2}, {.dtype = DType::kF64}));
        }) == "[matmul] operands have dtypes f32 and f64; cast one of them");
}

TEST_CASE("matmul_into: errors") {
  const Tensor a = zeros({2, 3});
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 2}), a, zeros({3, 4}), {});
        }) ==
        "[matmul_into] the output has shape [2, 2], the product [2, 4]; pass one of that shape");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 4, 2}).select(2, 0), a, zeros({3, 4}), {});
        }) ==
        "[matmul_into] the output [2, 4] with strides [8, 2] has neither rows nor columns of unit "
        "stride; pass a contiguous one");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 4}).expand({3, 2, 4}), zeros({3, 2, 3}), zeros({3, 4}), {});
        }) ==
        "[matmul_into] the output [3, 2, 4] with strides [0, 4, 1] repeats elements in dim 0; pass "
        "a contiguous one");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(Tensor(), a, zeros({3, 4}), {});
        }) == "[matmul_into] the output is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 4}, {.dtype = DType::kI64}), a, zeros({3, 4}), {});
        }) == "[matmul_into] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] {
          matmul_into(zeros({2, 4}, {.device = kNull}), a, zeros({3, 4}), {});
        }) == "[matmul_into] operands are on null and cpu; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { matmul_into(zeros({2}), a, zeros({3}), {}); }) ==
        "[matmul_into] needs operands of at least 2 dims, got [2, 3] and [3]; unsqueeze first");
  Shape many = Shape::filled(kMaxDims, 1);
  many[kMaxDims - 1] = 3;
  CHECK(matmul(zeros(many), zeros({3, 2})).ndim() == kMaxDims);
}

TEST_CASE("bmm, addmm, mv, dot, outer: errors") {
  const Tensor a = zeros({2, 3}), v = zeros({3});
  CHECK(thrown<InvalidArgument>([&] {
          bmm(a, zeros({3, 2}));
        }) == "[bmm] needs [b, m, k] and [b, k, n], got [2, 3] and [3, 2]; matmul broadcasts");
  CHECK(thrown<InvalidArgument>([&] {
          bmm(zeros({2, 2, 3}), zeros({1, 3, 2}));
        }) ==
        "[bmm] needs [b, m, k] and [b, k, n], got [2, 2, 3] and [1, 3, 2]; matmul broadcasts");
  CHECK(thrown<InvalidArgument>([&] {
          addmm(v, zeros({1, 2, 3}), zeros({3, 2}));
        }) ==
        "[addmm] needs two matrices to multiply, got [1, 2, 3] and [3, 2]; matmul takes more dims");
  CHECK(thrown<InvalidArgument>([&] {
          addmm(zeros({5, 2, 4}), a, zeros({3, 4}));
        }) ==
        "[addmm] [5, 2, 4] does not broadcast to the product's [2, 4]; it may have fewer dims, or "
        "extents of 1");
  CHECK(thrown<InvalidArgument>([&] {
          addmm(Tensor(), a, zeros({3, 4}));
        }) == "[addmm] what is added is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] {
          addmm(zeros({4}, {.dtype = DType::kF64}), a, zeros({3, 4}));
        }) == "[addmm] operands have dtypes f64 and f32; cast one of them");
  CHECK(thrown<InvalidArgument>([&] {
          addmm(zeros({4}, {.device = kNull}), a, zeros({3, 4}));
        }) == "[addmm] operands are on null and cpu; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { mv(v, v); }) ==
        "[mv] needs a matrix and a vector, got [3] and [3]");
  CHECK(thrown<InvalidArgument>([&] { dot(a, v); }) ==
        "[dot] needs a vector and a vector, got [2, 3] and [3]");
  CHECK(thrown<InvalidArgument>([&] { outer(a, v); }) ==
        "[outer] needs a vector and a vector, got [2, 3] and [3]");
}

}  // namespace
}  // namespace tessera
