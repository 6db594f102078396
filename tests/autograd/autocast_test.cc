// Casts by class of operation, what is cast once, and the table.
#include "tessera/autograd/ops/autocast.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

// f32 is the lower dtype of most tests, under f64.
Variable f32_leaf(const Shape& shape) {
  return Variable(cast(irregular(shape), DType::kF32), true);
}

TEST_CASE("autocast table: sorted, each operation once") {
  for (std::size_t i = 1; i < kAutocastTable.size(); ++i)
    CHECK(kAutocastTable[i - 1].operation < kAutocastTable[i].operation);
  CHECK(autocast_class("matmul") == AutocastClass::kLower);
  CHECK(autocast_class("exp") == AutocastClass::kF32);
  CHECK(autocast_class("addcmul") == AutocastClass::kWidest);
  CHECK_FALSE(autocast_class("relu"));
}

TEST_CASE("autocast: the scope's dtype, nested, restored by exceptions") {
  CHECK_FALSE(autocast_dtype());
  CHECK_FALSE(detail::autocasting());
  try {
    AutocastGuard outer(DType::kBF16);
    CHECK(autocast_dtype() == DType::kBF16);
    {
      AutocastGuard off(std::nullopt);
      CHECK_FALSE(autocast_dtype());
      CHECK_FALSE(detail::autocasting());
      AutocastGuard inner(DType::kF16);
      CHECK(autocast_dtype() == DType::kF16);
    }
    CHECK(autocast_dtype() == DType::kBF16);
    throw 1;
  } catch (int) {
  }
  CHECK_FALSE(autocast_dtype());
  CHECK_FALSE(detail::autocasting());
  CHECK(thrown<InvalidArgument>([] { AutocastGuard guard(DType::kI64); }) ==
        "[autocast] i64 is not a floating dtype; use bf16, f16 or f32");
}

TEST_CASE("autocast: operands by class") {
  const Variable x = leaf({4, 3}), w = leaf({2, 3}), b = leaf({2});
  const Variable narrow = f32_leaf({4, 3});
  AutocastGuard autocast(DType::kF32);
  CHECK(linear(x, w, b).dtype() == DType::kF32);
  CHECK(linear(narrow, w, Variable()).dtype() == DType::kF32);
  CHECK(matmul(x, transpose(w, 0, 1)).dtype() == DType::kF32);
  for (const Variable& wide : {add(x, narrow), sub(narrow, x), mul(x, narrow), div(narrow, x)})
    CHECK(wide.dtype() == DType::kF64);
  CHECK(add(narrow, narrow).dtype() == DType::kF32);
  CHECK(relu(x).dtype() == DType::kF64);
  CHECK(atan2(narrow, x).dtype() == DType::kF64);
  // f32 and wider stay what they are.
  const Variable logits = exp(x);
  CHECK(logits.dtype() == DType::kF64);
  CHECK(sum(x).dtype() == DType::kF64);
  CHECK(cross_entropy(narrow, zeros({4}, {.dtype = DType::kI64})).dtype() == DType::kF32);
}

TEST_CASE("autocast: 16 bits are summed and exponentiated in f32, and joined in it") {
  const Variable x(cast(irregular({3}, 1, 2), DType::kBF16), true);
  const Variable y(cast(irregular({3}, 1, 2), DType::kF16), true);
  AutocastGuard autocast(DType::kBF16);
  for (const Variable& up : {exp(x),
                             expm1(x),
                             log(x),
                             log1p(x),
                             square(x),
                             reciprocal(x),
                             rsqrt(x),
                             softplus(x),
                             log2(x),
                             log10(x),
                             sinh(x),
                             cosh(x),
                             tan(x),
                             asin(mul(x, 0.5)),
                             acos(mul(x, 0.5)),
                             erfinv(mul(x, 0.5)),
                             atan2(x, y),
                             pow(x, 3),
                             pow(2, x),
                             sum(x),
                             mean(x),
                             add(x, y),
                             addcmul(x, y, y),
                             addcdiv(y, x, x),
                             softmax(x),
                             log_softmax(x),
                             logsumexp(x),
                             prod(x),
                             var(x),
                             stddev(x),
                             norm(x),
                             cumsum(x, 0),
                             cumprod(x, 0),
                             logcumsumexp(x, 0),
                             layer_norm(x, Variable(), Variable()),
                             rms_norm(x, Variable())})
    CHECK(up.dtype() == DType::kF32);
  // The product is not rounded to 16 bits before it is added.
  const Variable wide(cast(irregular({3}), DType::kF32));
  CHECK(values(addcmul(wide, x, x)) ==
        values(addcmul(wide, cast(x, DType::kF32), cast(x, DType::kF32))));
  backward(sum(log(x)));
  CHECK(x.grad().dtype() == DType::kBF16);
  const std::vector<double> value = values(x), got = values(x.grad());
  for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == Approx(1 / value[i]).epsilon(1e-2));
}

TEST_CASE("autocast: gradients arrive in the dtypes of the leaves, of the lower values") {
  const Variable x = leaf({5, 3}), w = leaf({2, 3}), b = leaf({2});
  const Variable x32(cast(x.tensor(), DType::kF32), true), w32(cast(w.tensor(), DType::kF32), true),
      b32(cast(b.tensor(), DType::kF32), true);
  {
    AutocastGuard autocast(DType::kF32);
    backward(sum(mul(linear(x, w, b), 3.0)));
  }
  backward(sum(mul(linear(x32, w32, b32), 3.0)));
  CHECK(w.grad().dtype() == DType::kF64);
  CHECK(values(w.grad()) == values(w32.grad()));
  CHECK(values(x.grad()) == values(x32.grad()));
  CHECK(values(b.grad()) == values(b32.grad()));
}

// The node that cast the weight of a matmul.
const GraphNode* cast_of_weight(const Variable& product) {
  const GraphNode* node = product.gradient_edge().node->inputs()[1].node.get();
  CHECK(std::string(node->name()) == "cast");
  return node;
}

TEST_CASE("autocast: a leaf is cast once in a scope") {
  const Variable x = leaf({2, 3}), w = leaf({3, 3});
  {
    AutocastGuard autocast(DType::kF32);
    const Variable first = matmul(x, w), second = matmul(first, w);
    CHECK(cast_of_weight(first) == cast_of_weight(second));
    // Written since, it is cast anew.
    {
      NoGradGuard no_grad;
      fill_(w.tensor(), 0.5);
      CHECK_FALSE(matmul(x, w).requires_grad());
    }
    const Variable third = matmul(x, w);
    CHECK(cast_of_weight(third) != cast_of_weight(first));
    CHECK(values(slice(third, 1, 0, 1)) == values(slice(third, 1, 2, 3)));
    {
      AutocastGuard inner(DType::kF32);
      CHECK(cast_of_weight(matmul(x, w)) != cast_of_weight(third));
    }
    CHECK(cast_of_weight(matmul(x, w)) == cast_of_weight(third));
    // A result of an operation is not kept.
    const Variable v = mul(w, 2.0);
    CHECK(cast_of_weight(matmul(x, v)) != cast_of_weight(matmul(x, v)));
  }
  CHECK(w.tensor().family_handles() == 1);
}

TEST_CASE("autocast: steps in one scope, gradients of all uses") {
  const Variable x = leaf({2, 3}), w = leaf({3, 3});
  AutocastGuard autocast(DType::kF32);
  for (int step = 1; step <= 2; ++step) {
    backward(sum(matmul(matmul(x, w), w)));
    CHECK(autocast_dtype() == DType::kF32);
  }
  const std::vector<double> twice = values(w.grad());
  Variable(w).set_grad({});
  backward(sum(matmul(matmul(x, w), w)));
  const std::vector<double> once = values(w.grad());
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2 * once[i]);
}

TEST_CASE("autocast: a backward in an inner scope uses up the casts of the outer one") {
  const Variable x = leaf({2, 3}), w = leaf({3, 3});
  AutocastGuard autocast(DType::kF32);
  const Variable first = sum(matmul(x, w));
  {
    AutocastGuard off(std::nullopt);
    backward(first);
  }
  const std::vector<double> once = values(w.grad());
  backward(sum(matmul(x, w)));
  const std::vector<double> twice = values(w.grad());
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2 * once[i]);
}

class OtherSink final : public GradientSink {
 public:
  std::optional<GradientSlot> take_slot(DType) override { return std::nullopt; }
  void accumulate(const Tensor&) override {}
};

TEST_CASE("autocast: a leaf with another sink is not kept") {
  const Variable x = leaf({2, 3});
  Variable w = leaf({3, 3});
  w.set_gradient_sink(std::make_shared<OtherSink>());
  AutocastGuard autocast(DType::kF32);
  CHECK(cast_of_weight(matmul(x, w)) != cast_of_weight(matmul(x, w)));
}

TEST_CASE("autocast: derivatives run without it") {
  const Variable x = leaf({2, 3}), w = leaf({3, 2});
  const Variable y = matmul(x, w);
  AutocastGuard autocast(DType::kF32);
  const Variable dx = grad({&y, 1}, {&x, 1}, {.gradient = y.tensor(), .create_graph = true})[0];
  CHECK(dx.dtype() == DType::kF64);
  CHECK(dx.requires_grad());
}

// Every operation of the class in both 16-bit dtypes: the result is what casting by hand gives, the
// gradients come in f32.
TEST_CASE("autocast: operations in 16 bits give what casting by hand gives") {
  using Operation = Variable (*)(const std::vector<Variable>&);
  struct Case {
    const char* name;
    Operation operation;
    std::vector<Shape> shapes;
  };
  const Case cases[] = {
      {"matmul", [](const auto& v) { return matmul(v[0], v[1]); }, {{3, 5}, {5, 2}}},
      {"bmm", [](const auto& v) { return bmm(v[0], v[1]); }, {{2, 3, 5}, {2, 5, 2}}},
      {"addmm", [](const auto& v) { return addmm(v[0], v[1], v[2]); }, {{2}, {3, 5}, {5, 2}}},
      {"mv", [](const auto& v) { return mv(v[0], v[1]); }, {{3, 5}, {5}}},
      {"dot", [](const auto& v) { return dot(v[0], v[1]); }, {{5}, {5}}},
      {"linear",
       [](const auto& v) { return linear(v[0], v[1], v[2], ActivationKind::kGelu); },
       {{3, 5}, {2, 5}, {2}}},
      {"conv1d",
       [](const auto& v) { return conv1d(v[0], v[1], v[2]); },
       {{2, 3, 7}, {4, 3, 3}, {4}}},
      {"conv2d",
       [](const auto& v) { return conv2d(v[0], v[1], v[2]); },
       {{2, 3, 5, 4}, {4, 3, 3, 2}, {4}}},
      {"attention",
       [](const auto& v) { return scaled_dot_product_attention(v[0], v[1], v[2]); },
       {{2, 2, 5, 4}, {2, 1, 6, 4}, {2, 1, 6, 3}}},
  };
  for (const Case& c : cases) {
    for (DType lower : {DType::kBF16, DType::kF16}) {
      INFO(c.name << " in " << dtype_name(lower));
      std::vector<Variable> inputs, by_hand;
      for (const Shape& shape : c.shapes) {
        inputs.push_back(f32_leaf(shape));
        by_hand.push_back(Variable(cast(inputs.back().tensor(), lower), true));
      }
      const Variable y = [&] {
        const AutocastGuard autocast(lower);
        return c.operation(inputs);
      }();
      const Variable expected = c.operation(by_hand);
      CHECK(y.dtype() == lower);
      CHECK(values(y) == values(expected));
      backward(sum(cast(y, DType::kF32)));
      backward(sum(cast(expected, DType::kF32)));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        CHECK(inputs[i].grad().dtype() == DType::kF32);
        CHECK(values(inputs[i].grad()) == values(by_hand[i].grad()));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
