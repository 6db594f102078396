// Linear layers: bias, leading dims, and fused activations with the bits of the separate
// operations.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/matmul_support.h"

namespace tessera {
namespace {

using namespace testing;

// Sums of 37 products of up to 4 in size, rounded in f32 (f64) at each addition, and once at the
// end.
bool is_near(double got, double exact, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::abs(got - exact) <= 1e-13;
    case DType::kBF16:
      return std::abs(got - exact) <= 2e-5 + 0x1.02p-8 * std::abs(exact);
    case DType::kF16:
      return std::abs(got - exact) <= 2e-5 + 0x1.02p-11 * std::abs(exact);
    default:
      return std::abs(got - exact) <= 2e-5;
  }
}

TEST_CASE("linear: bias, leading dims, against plain loops") {
  const std::int64_t in = 37, out = 70;
  for (DType dtype : kFloating) {
    const Tensor w = spread_of(dtype, {out, in}), b = spread_of(dtype, {out});
    for (const Shape& leading : {Shape{}, Shape{3}, Shape{2, 3}, Shape{300}}) {
      Shape shape = leading;
      shape.push_back(in);
      const Tensor x = spread_of(dtype, shape);
      const auto xs = values(x), ws = values(w), bs = values(b), got = values(linear(x, w, b)),
                 plain = values(linear(x, w, Tensor()));
      INFO(dtype_name(dtype) << shape.str());
      REQUIRE(got.size() == static_cast<std::size_t>(leading.numel() * out));
      int wrong = 0;
      for (std::int64_t i = 0; i < leading.numel() * out; ++i) {
        double sum = 0;
        for (std::int64_t p = 0; p < in; ++p)
          sum += xs[static_cast<std::size_t>(i / out * in + p)] *
                 ws[static_cast<std::size_t>(i % out * in + p)];
        const auto at = static_cast<std::size_t>(i);
        const double with_bias = sum + bs[static_cast<std::size_t>(i % out)];
        if (!is_near(got[at], with_bias, dtype) || !is_near(plain[at], sum, dtype)) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
}

// On a GPU the library chooses its code by the layout. `scale`: the size of the
// rounded numbers.
bool same_product(const Tensor& aligned, const Tensor& packed, const Tensor& scale) {
  if (packed.device().is_cpu()) return static_cast<bool>(all_equal(aligned, packed));
  const std::vector<double> a = values(aligned), p = values(packed), s = values(scale);
  const double unit = packed.dtype() == DType::kBF16  ? 0x1p-8
                      : packed.dtype() == DType::kF16 ? 0x1p-11
                                                      : 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - p[i]) <= 4e-5 + 2.5 * unit * (std::abs(p[i]) + std::abs(s[i]))) continue;
    UNSCOPED_INFO("element " << i << " is " << a[i] << ", wanted " << p[i]);
    return false;
  }
  return true;
}

TEST_CASE("linear: aligned rows have the values of packed ones") {
  for (DType dtype : kFloating) {
    for (std::int64_t out : {1, 5, 61, 64, 257, 1029}) {
      const Tensor x = spread_of(dtype, {2, 70, 37}), w = spread_of(dtype, {out, 37});
      for (const Tensor& bias : {Tensor(), spread_of(dtype, {out})}) {
        INFO(dtype_name(dtype) << out << bias.defined());
        const Tensor y = linear(x, w, bias, ActivationKind::kNone, RowPitch::kAligned);
        CHECK(y.strides()[1] == pitch_of(out, RowPitch::kAligned, {.dtype = dtype}));
        const Tensor plain = linear(x, w, bias);
        CHECK(same_product(y, plain, plain));
        for (ActivationKind activation : {ActivationKind::kRelu, ActivationKind::kGeluTanh}) {
          const ActivatedLinear packed = linear_and_before(x, w, bias, activation),
                                aligned =
                                    linear_and_before(x, w, bias, activation, RowPitch::kAligned);
          // The library applies GELU before it rounds, if rows are aligned.
          CHECK(same_product(aligned.result, packed.result, packed.before));
          CHECK(same_product(aligned.before, packed.before, packed.before));
        }
      }
    }
  }
}

TEST_CASE("linear: empty extents") {
  const Tensor w = spread_tensor<float>({7, 5}), b = spread_tensor<float>({7});
  CHECK(linear(zeros({0, 5}), w, b).shape() == Shape{0, 7});
  CHECK(linear(zeros({2, 3}), zeros({0, 3}), zeros({0})).shape() == Shape{2, 0});
  for (DType dtype : kFloating) {
    const TensorOptions options{.dtype = dtype};
    CHECK(values(linear(zeros({2, 0}, options), zeros({3, 0}, options), ones({3}, options))) ==
          std::vector<double>(6, 1));
    const Tensor minus = full({3}, -1, options);
    CHECK(values(linear(zeros({2, 0}, options), zeros({3, 0}, options), minus,
                        ActivationKind::kRelu)) == std::vector<double>(6, 0));
  }
}

TEST_CASE("linear: a bias with a stride, and over a long inner dim") {
  const Tensor x = spread_tensor<float>({6, 5}), w = spread_tensor<float>({7, 5});
  const Tensor wide = spread_tensor<float>({7, 2}).select(1, 1);
  CHECK(equal_bits(linear(x, w, wide), linear(x, w, clone(wide))));
  const std::int64_t k = 9000;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const TensorOptions options{.dtype = dtype};
    const Tensor y = linear(ones({2, k}, options), ones({3, k}, options), ones({3}, options));
    CHECK(values(y) == std::vector<double>(6, static_cast<double>(k + 1)));
  }
}

TEST_CASE("linear: an activation has the bits of its own operation") {
  for (DType dtype : kFloating) {
    for (const auto& [rows, in, out] : std::vector<std::array<std::int64_t, 3>>{
             {5, 7, 3}, {1, 9, 33}, {9, 5, 1}, {300, 64, 70}, {64, 784, 600}, {3, 0, 4}}) {
      const Tensor x = spread_of(dtype, {rows, in}, -0.5, 0.5), w = spread_of(dtype, {out, in}),
                   b = spread_of(dtype, {out});
      for (ActivationKind activation :
           {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGelu,
            ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
        for (const Tensor& bias : {b, Tensor()}) {
          INFO(dtype_name(dtype) << " " << rows << " " << in << " " << out << " activation "
                                 << static_cast<int>(activation) << " bias " << bias.defined());
          const Tensor before = linear(x, w, bias);
          CHECK(is_activation_of(linear(x, w, bias, activation), before, activation));
          const ActivatedLinear both = linear_and_before(x, w, bias, activation);
          CHECK(is_activation_of(both.result, before, activation));
          CHECK(equal_bits(both.before, before));
        }
      }
    }
  }
}

TEST_CASE("linear: equal bits for any number of threads, with bias and activation") {
  for (DType dtype : kFloating) {
    const Tensor x = spread_of(dtype, {520, 130}), w = spread_of(dtype, {300, 130}),
                 b = spread_of(dtype, {300});
    CHECK(same_for_any_threads([&] { return bits_of(linear(x, w, b, ActivationKind::kGelu)); }));
  }
}

TEST_CASE("linear: errors") {
  const Tensor a = zeros({2, 3});
  CHECK(thrown<InvalidArgument>([&] {
          linear(a, zeros({5, 4}), Tensor());
        }) == "[linear] x [2, 3] has 3 features, weight [5, 4] takes 4; they must agree");
  CHECK(thrown<InvalidArgument>([&] {
          linear(a, zeros({5, 3}), zeros({4}));
        }) == "[linear] bias has shape [4], expected [5]");
  CHECK(thrown<InvalidArgument>([&] {
          linear(Tensor::scalar(1), zeros({5, 3}), Tensor());
        }) == "[linear] needs x [..., in] and weight [out, in], got [] and [5, 3]");
  CHECK(thrown<InvalidArgument>([&] {
          linear(a, zeros({5, 3}, {.dtype = DType::kBF16}), Tensor());
        }) == "[linear] operands have dtypes f32 and bf16; cast one of them");
  CHECK(thrown<InvalidArgument>([&] {
          linear(a, zeros({5, 3}), zeros({5}, {.dtype = DType::kF64}));
        }) == "[linear] operands have dtypes f32 and f64; cast one of them");
  CHECK(thrown<InvalidArgument>([&] {
          linear_and_before(a, zeros({5, 4}), Tensor(), ActivationKind::kSilu);
        }) == "[linear] x [2, 3] has 3 features, weight [5, 4] takes 4; they must agree");
}

}  // namespace
}  // namespace tessera
