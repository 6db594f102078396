// Recording operations of one's own, and tensors kept for backward.
#include "tessera/autograd/function.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

// The example of function.h.
Variable my_gelu(const Variable& x) {
  return record("my_gelu", gelu(x.tensor()), {x},
                [x = SavedTensor(x, "my_gelu")](const Tensor& dy, const BackwardContext&) {
                  return std::vector<Tensor>{gelu_backward(dy, x.unpack())};
                });
}

TEST_CASE("record: an operation of the user's") {
  const Variable x = leaf({3});
  const Variable y = leaf({3});
  backward(sum(my_gelu(x)));
  backward(sum(gelu(y)));
  CHECK(values(x.grad()) == values(y.grad()));
}

TEST_CASE("record: nothing is kept when nothing can be asked") {
  auto token = std::make_shared<int>(1);
  const auto holding = [&](const Variable& x) {
    return record("hold", x.tensor(), {x}, [token](const Tensor& dy, const BackwardContext&) {
      return std::vector<Tensor>{dy};
    });
  };
  const Variable plain = holding(constant(1));
  CHECK_FALSE(plain.requires_grad());
  CHECK(token.use_count() == 1);
  {
    NoGradGuard no_grad;
    CHECK_FALSE(holding(scalar_leaf(1.0)).requires_grad());
  }
  Variable kept = holding(scalar_leaf(1.0));
  CHECK(token.use_count() == 2);
  kept = Variable();
  CHECK(token.use_count() == 1);
}

TEST_CASE("record: a derivative in tensors cannot be differentiated again") {
  const Variable x = leaf({3});
  const Variable y = sum(my_gelu(x));
  CHECK(thrown<StateError>([&] {
          grad({&y, 1}, {&x, 1}, {.create_graph = true});
        }) ==
        "[backward] the derivative of \"my_gelu\" cannot be differentiated again; backward "
        "without create_graph, or record the operation with record_twice");
}

TEST_CASE("record_differentiable: several inputs and outputs, some without gradients") {
  const Variable a = leaf({2});
  const Variable b(irregular({2}));
  const std::vector<Variable> inputs = {a, b, Variable()};
  const std::vector<Tensor> outputs = {mul(a.tensor(), b.tensor()), arange(2)};
  const std::vector<Variable> results =
      record_differentiable("product_and_index", outputs, inputs,
                            [b](const Gradients& dy, const BackwardContext& context) {
                              CHECK(dy.size() == 2);
                              CHECK(context.needs(0));
                              CHECK_FALSE(context.needs(1));
                              CHECK_FALSE(context.needs(2));
                              return Gradients{mul(dy[0], b), Variable(), Variable()};
                            });
  CHECK(results[0].requires_grad());
  CHECK_FALSE(results[1].requires_grad());
  backward(sum(results[0]));
  CHECK(values(a.grad()) == values(b));
  NoGradGuard no_grad;
  const std::vector<Variable> plain = record_differentiable("none", outputs, inputs, {});
  CHECK(plain.size() == 2);
  CHECK_FALSE(plain[0].requires_grad());
}

TEST_CASE("record_differentiable: more edges than fit inside a node") {
  std::vector<Variable> inputs;
  std::vector<Tensor> outputs;
  for (int i = 0; i < 7; ++i) {
    inputs.push_back(leaf({2}));
    outputs.push_back(inputs.back().tensor());
  }
  const std::vector<Variable> results = record_differentiable(
      "seven", outputs, inputs, [](const Gradients& dy, const BackwardContext&) { return dy; });
  Variable total = results[0];
  for (int i = 1; i < 7; ++i)
    total = add(total, mul(results[static_cast<std::size_t>(i)], i + 1.0));
  backward(sum(total));
  for (int i = 0; i < 7; ++i)
    CHECK(values(inputs[static_cast<std::size_t>(i)].grad()) == std::vector<double>(2, i + 1.0));
}

TEST_CASE("record_twice: a derivative that needs its own output, asked from the context") {
  const Variable x = scalar_leaf(0.5);
  Variable y = exp(x);
  const double expected = y.item<double>();
  for (int i = 0; i < 3; ++i) {
    y = grad({&y, 1}, {&x, 1}, {.create_graph = true})[0];
    CHECK(y.item<double>() == Approx(expected));
  }
  // It is not kept alive by itself.
  const std::weak_ptr<GraphNode> node = y.gradient_edge().node;
  y = Variable();
  CHECK(node.expired());
}

TEST_CASE("saved tensors: overwriting one is an error that names both operations") {
  const Variable x = leaf({2, 3});
  const Variable y = sum(square(x));
  fill_(x.tensor(), 0);
  CHECK(thrown<StateError>([&] { backward(y); }) ==
        "[backward] a tensor of shape [2, 3] that \"square\" saved was overwritten since by "
        "\"fill_\" (version 1, saved at 0); write to a copy, or after backward");
  const Variable z = leaf({2, 3});
  const Variable r = relu(z);
  fill_(r.tensor(), 1);
  CHECK_THAT(thrown<StateError>([&] { backward(sum(r)); }), Contains("that \"relu\" saved"));
}

TEST_CASE("saved tensors: a view's write counts for its family, made by operations or not") {
  const Variable x = leaf({2, 3});
  const Variable rows = slice(x, 0, 0, 1);
  const Variable turned = transpose(x, 0, 1);
  const Variable flat = view(x, {6});
  const Variable y = sum(square(turned));
  CHECK(rows.tensor().version() == 0);
  fill_(rows.tensor(), 0);
  CHECK(flat.tensor().version() == 1);
  CHECK(turned.tensor().version() == 1);
  CHECK_THAT(thrown<StateError>([&] { backward(y); }), Contains("of shape [3, 2] that \"square\""));
  // detach() shares the family as well, detached_version() does not.
  const Variable w = leaf({2});
  const Variable v = sum(square(w));
  fill_(w.tensor().detached_version(), 5);
  backward(v);
  CHECK(values(w.grad()) == std::vector<double>{10, 10});
  const Variable u = sum(square(w));
  fill_(w.detach().tensor(), 1);
  CHECK_THAT(thrown<StateError>([&] { backward(u); }), Contains("overwritten"));
}

TEST_CASE("saved tensors: what an operation does not need may be overwritten") {
  const Variable x = leaf({2});
  const Variable c(irregular({2}));
  const Variable y = add(mul(x, c), sub(x, c));
  fill_(x.tensor(), 7);
  backward(sum(y));
  CHECK(values(x.grad()) == values(add(irregular({2}), 1)));
}

TEST_CASE("saved tensors: a storage emptied and refilled in place is no overwrite") {
  const DefaultDeviceScope host(kCpu);  // whose memory the test fills
  Tensor weight =
      Tensor::empty_named({2, 2}, {.dtype = DType::kF64}, MemoryCategory::kGathered, "w");
  copy_(weight, irregular({2, 2}));
  const Variable w(weight, true);
  const Variable x = leaf({3, 2});
  const Variable y = sum(matmul(x, w));
  TensorStorage storage = weight.storage();
  storage.release();
  CHECK_THAT(thrown<StateError>([&] { backward(y, {.retain_graph = true}); }), Contains("\"w\""));
  x.grad();
  storage.materialize();
  storage.begin_fill();
  static_cast<double*>(storage.filling_data())[0] = 1;
  static_cast<double*>(storage.filling_data())[1] = 2;
  static_cast<double*>(storage.filling_data())[2] = 3;
  static_cast<double*>(storage.filling_data())[3] = 4;
  storage.end_fill();
  Variable(x).set_grad({});
  backward(y);
  CHECK(values(x.grad()) == std::vector<double>{3, 7, 3, 7, 3, 7});
}

TEST_CASE("saved variables: nothing saved, nothing to ask") {
  CHECK(thrown<StateError>([] { SavedVariable().unpack(); }) ==
        "[backward] a derivative asks for a variable it did not save; save it where it is needed");
}

}  // namespace
}  // namespace tessera::testing
