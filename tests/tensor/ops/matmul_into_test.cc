// Products that are written into an existing tensor, also in another dtype, and error texts.
#include <catch2/catch.hpp>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/matmul_support.h"

namespace tessera {
namespace {

using namespace testing;

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

TEST_CASE("matmul_into: one row, its operands in every layout, rows of any number") {
  for (const std::int64_t k : {1, 4, 41, 1027}) {
    for (DType from : {DType::kBF16, DType::kF16, DType::kF32}) {
      const Tensor a = spread_of(from, {1, k}), b = spread_of(from, {k, 67});
      const Tensor column = spread_of(from, {2 * k, 1});
      copy_(column.slice(0, 0, 2 * k, 2), a.transpose(0, 1));
      const auto product = slow_product(a, b);
      const Tensor turned = clone(b.transpose(0, 1)).transpose(0, 1);
      for (const MatmulIntoOptions& options : kFactors) {
        const Tensor c = spread_of(DType::kF32, {1, 67}, -1, 1);
        const auto before = values(c);
        std::vector<double> exact(product.size());
        for (std::size_t i = 0; i < exact.size(); ++i)
          exact[i] = options.alpha * product[i] + options.beta * before[i];
        for (const Tensor& left : {a, column.slice(0, 0, 2 * k, 2).transpose(0, 1)}) {
          for (const Tensor& right : {b, turned}) {
            const Tensor out = clone(c);
            matmul_into(out, left, right, options);
            INFO(dtype_name(from) << " k " << k << " alpha " << options.alpha << " beta "
                                  << options.beta);
            CHECK(is_close(out, exact, DType::kF32, k));
          }
        }
      }
    }
  }
}

TEST_CASE("matmul_into: nothing is written where there are no elements") {
  const Tensor whole = ones({3, 0, 5});
  CHECK_NOTHROW(matmul_into(ones({3, 2, 0}), ones({3, 2, 5}), ones({5, 0}), {}));
  CHECK_NOTHROW(matmul_into(whole, ones({3, 0, 4}), ones({3, 4, 5}), {.beta = 1}));
  CHECK_NOTHROW(matmul_into(whole.transpose(1, 2), ones({3, 5, 4}), ones({4, 0}), {}));
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
    const std::int64_t k = 1000;  // several chunks if tiles are converted
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
        }) == "[matmul] operands are on " + default_device().str() +
                  " and null; move them to one device");
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
        }) == "[matmul_into] operands are on null and " + default_device().str() +
                  "; move them to one device");
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
        }) ==
        "[addmm] operands are on null and " + default_device().str() + "; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { mv(v, v); }) ==
        "[mv] needs a matrix and a vector, got [3] and [3]");
  CHECK(thrown<InvalidArgument>([&] { dot(a, v); }) ==
        "[dot] needs a vector and a vector, got [2, 3] and [3]");
  CHECK(thrown<InvalidArgument>([&] { outer(a, v); }) ==
        "[outer] needs a vector and a vector, got [2, 3] and [3]");
}

}  // namespace
}  // namespace tessera
