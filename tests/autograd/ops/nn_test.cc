// Operations of neural networks: values against PyTorch, derivatives against differences and
// PyTorch.
#include "tessera/autograd/ops/nn.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/autograd/fixtures.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/reference.h"

namespace tessera::testing {
namespace {

// The gradients of function(leaves) for the case's dy, compared with the case's own; with
// create_graph too, where the derivative is made of other operations.
void check_reference(const ReferenceCase& c, const std::vector<std::string>& names,
                     const TestedFunction& function) {
  INFO(c.name);
  Inputs inputs, given;
  for (const std::string& name : names) {
    const Tensor x = c.optional(name);
    inputs.push_back(x.defined() ? Variable(x, true) : Variable());
    if (x.defined()) given.push_back(inputs.back());
  }
  for (bool create_graph : {false, true}) {
    const Variable y = function(inputs);
    CHECK(all_close(y.tensor(), c.tensor("y")));
    const Variable loss = sum(mul(y, Variable(c.tensor("dy"))));
    const auto gradients = grad({&loss, 1}, given, {.create_graph = create_graph});
    std::size_t next = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!inputs[i].defined()) continue;
      INFO("create_graph " << create_graph << ": d" << names[i]);
      CHECK(all_close(gradients[next++].tensor(), c.tensor("d" + names[i])));
    }
  }
}

TEST_CASE("softmax and log_softmax: over any dim") {
  for (const ReferenceCase& c : load_reference("softmax")) {
    check_reference(c, {"x"}, [&](const Inputs& in) {
      const int dim = static_cast<int>(c.number("dim"));
      return c.text("function") == "softmax" ? softmax(in[0], dim) : log_softmax(in[0], dim);
    });
  }
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 3, 4}, Shape{2, 0, 3}}) {
    for (int dim = -1; dim < shape.ndim() - 1; ++dim) {
      INFO(shape.str() << " dim " << dim);
      check_twice([&](const Inputs& in) { return softmax(in[0], dim); }, {leaf(shape, -2, 2)});
      check_twice([&](const Inputs& in) { return log_softmax(in[0], dim); }, {leaf(shape, -2, 2)});
    }
  }
  check_twice([](const Inputs& in) { return softmax(transpose(in[0], 0, 1)); }, {leaf({3, 5})});
}

TEST_CASE("cross entropy: every option") {
  for (const ReferenceCase& c : load_reference("cross_entropy")) {
    const std::string& reduction = c.text("reduction");
    const CrossEntropyOptions options{
        .reduction = reduction == "none"   ? LossReduction::kNone
                     : reduction == "mean" ? LossReduction::kMean
                                           : LossReduction::kSum,
        .ignore_index = static_cast<std::int64_t>(c.number("ignore_index")),
        .label_smoothing = c.number("label_smoothing"),
        .weight = c.optional("weight")};
    const auto function = [&](const Inputs& in) {
      return cross_entropy(in[0], c.tensor("targets"), options);
    };
    check_reference(c, {"logits"}, function);
    INFO(c.name);
    check_twice(function, {leaf({5, 4}, -3, 3)});
  }
}

TEST_CASE("cross entropy: rows of any dims, and of 16 bits") {
  const Tensor targets = Tensor::from_vector<std::int32_t>({1, 0, 4, -100, 1, 3}, {2, 3});
  for (LossReduction reduction :
       {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum}) {
    check_twice([&](const Inputs& in) { return cross_entropy(in[0], targets, reduction); },
                {leaf({2, 3, 5}, -3, 3)});
    const Variable half(cast(irregular({2, 3, 5}, -3, 3), DType::kBF16), true);
    const Variable wide(cast(half.tensor(), DType::kF64), true);
    const Variable loss = cross_entropy(half, targets, reduction);
    CHECK(loss.dtype() == DType::kF32);
    backward(sum(loss));
    backward(sum(cross_entropy(wide, targets, reduction)));
    CHECK(half.grad().dtype() == DType::kBF16);
    CHECK(all_close(half.grad(), cast(wide.grad(), DType::kBF16)));
  }
}

TEST_CASE("norms: what PyTorch computes") {
  for (const ReferenceCase& c : load_reference("norm")) {
    const std::string& function = c.text("function");
    const double eps = c.number("eps");
    if (function == "rms_norm") {
      check_reference(c, {"x", "weight"}, [&](const Inputs& in) {
        return rms_norm(in[0], in[1], {.dims = static_cast<int>(c.number("dims")), .eps = eps});
      });
      continue;
    }
    check_reference(c, {"x", "weight", "bias"}, [&](const Inputs& in) {
      if (function == "layer_norm")
        return layer_norm(in[0], in[1], in[2],
                          {.dims = static_cast<int>(c.number("dims")), .eps = eps});
      if (function == "group_norm")
        return group_norm(in[0], in[1], in[2],
                          {.groups = static_cast<std::int64_t>(c.number("groups")), .eps = eps});
      return batch_norm(in[0], in[1], in[2],
                        {.running_mean = clone(c.tensor("running_mean")),
                         .running_var = clone(c.tensor("running_var")),
                         .training = c.flag("training"),
                         .momentum = c.number("momentum"),
                         .eps = eps});
    });
  }
}

// y of x, weight and bias; also of x alone, of parameters alone, and with a weight but no bias.
void check_norm(const Shape& shape, const Shape& affine, const TestedFunction& norm) {
  INFO(shape.str());
  const Variable x = leaf(shape, -1, 3), w = leaf(affine, 0.5, 2, 0.3),
                 b = leaf(affine, -1, 1, 0.7);
  const Variable fixed(irregular(shape, -1, 3)), none;
  check_twice(norm, {x, w, b});
  check_twice([&](const Inputs& in) { return norm({in[0], none, none}); }, {x});
  check_twice([&](const Inputs& in) { return norm({fixed, in[0], in[1]}); }, {w, b});
  check_twice([&](const Inputs& in) { return norm({in[0], in[1], none}); }, {x, w});
  check_twice([&](const Inputs& in) { return norm({in[0], none, in[1]}); }, {x, b});
}

TEST_CASE("norms of sums: derivatives, through the norm and the sum") {
  const auto both = [](const AddNorm& out) { return mul(out.y, square(out.sum)); };
  check_twice([&](const Inputs& in) { return both(add_layer_norm(in[0], in[1], in[2], in[3])); },
              {leaf({3, 5}, -1, 3), leaf({3, 5}, -1, 1), leaf({5}, 0.5, 2, 0.3), leaf({5}, -1, 1)});
  check_twice([&](const Inputs& in) { return both(add_rms_norm(in[0], in[1], in[2])); },
              {leaf({3, 5}, -1, 3), leaf({3, 5}, -1, 1), leaf({5}, 0.5, 2, 0.3)});
  check_twice(
      [&](const Inputs& in) { return add_rms_norm(in[0], in[1], Variable(), {.dims = 2}).y; },
      {leaf({2, 3, 4}, -1, 3), leaf({2, 3, 4}, -1, 1)});
}

// What is added may be of two dtypes, which add() promotes.
TEST_CASE("norms of sums of two dtypes: the bits of add() and then the norm") {
  const Variable x(cast(irregular({4, 6}, -1, 3), DType::kF32), true);
  const Variable r(cast(irregular({4, 6}), DType::kBF16), true), w(ones({6}), true), none;
  const auto check = [&](const AddNorm& got, const Variable& sum, const Variable& y) {
    CHECK(got.sum.dtype() == DType::kF32);
    CHECK(all_equal(got.sum.tensor(), sum.tensor()));
    CHECK(all_equal(got.y.tensor(), y.tensor()));
    const Variable losses[] = {tessera::sum(sin(got.y) * got.sum), tessera::sum(sin(y) * sum)};
    const std::vector<Variable> a = grad({&losses[0], 1}, {{x, r, w}}),
                                b = grad({&losses[1], 1}, {{x, r, w}});
    CHECK(a[1].dtype() == DType::kBF16);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(all_equal(a[i].tensor(), b[i].tensor()));
  };
  const Variable first = add(x, r), second = add(x, r);
  check(add_layer_norm(x, r, w, none), first, layer_norm(first, w, none));
  check(add_rms_norm(x, r, w), second, rms_norm(second, w));
  CHECK(thrown<InvalidArgument>([&] { add_rms_norm(x, w, w); }) ==
        "[add_rms_norm] shapes [4, 6] and [6] differ; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { add_layer_norm(w, r, w, none); }) ==
        "[add_layer_norm] shapes [6] and [4, 6] differ; they must be equal");
}

TEST_CASE("layer, rms and group norm: derivatives") {
  for (const auto& [shape, dims] : {std::pair(Shape{3, 5}, 1), std::pair(Shape{2, 3, 4}, 2),
                                    std::pair(Shape{7}, 1), std::pair(Shape{0, 3}, 1)}) {
    Shape affine;
    for (int d = shape.ndim() - dims; d < shape.ndim(); ++d) affine.push_back(shape[d]);
    check_norm(shape, affine, [&, n = dims](const Inputs& in) {
      return layer_norm(in[0], in[1], in[2], {.dims = n, .eps = 0.01});
    });
    check_twice([&, n = dims](
                    const Inputs& in) { return rms_norm(in[0], in[1], {.dims = n, .eps = 0.01}); },
                {leaf(shape, -1, 3), leaf(affine, 0.5, 2, 0.3)});
    check_twice(
        [&, n = dims](const Inputs& in) {
          return rms_norm(in[0], Variable(), {.dims = n, .eps = 0.01});
        },
        {leaf(shape, -1, 3)});
  }
  for (const auto& [shape, groups] :
       {std::pair(Shape{2, 4}, 2), std::pair(Shape{2, 6, 3}, 3), std::pair(Shape{1, 2, 3, 2}, 1)}) {
    check_norm(shape, {shape[1]}, [&, n = groups](const Inputs& in) {
      return group_norm(in[0], in[1], in[2], {.groups = n, .eps = 0.01});
    });
  }
  check_twice(
      [](const Inputs& in) { return layer_norm(transpose(in[0], 0, 1), in[1], Variable()); },
      {leaf({3, 4}, -1, 3), leaf({3})});
}

TEST_CASE("batch norm: derivatives, training and not") {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 2, 4}, Shape{2, 2, 2, 3}}) {
    const Tensor mean = irregular({shape[1]}), var = irregular({shape[1]}, 0.5, 2);
    for (bool training : {true, false}) {
      INFO("training " << training);
      check_norm(shape, {shape[1]}, [&](const Inputs& in) {
        return batch_norm(in[0], in[1], in[2],
                          {.running_mean = training ? Tensor() : mean,
                           .running_var = training ? Tensor() : var,
                           .training = training,
                           .eps = 0.01});
      });
    }
  }
}

TEST_CASE("norms of 16 bits with parameters of f32: each gradient in its own dtype") {
  const Variable x(cast(irregular({4, 6}, -1, 3), DType::kBF16), true);
  const Variable w(cast(irregular({6}, 0.5, 2), DType::kF32), true);
  const Variable b(cast(irregular({6}), DType::kBF16), true);
  for (bool create_graph : {false, true}) {
    const Inputs in = {x, w, Variable(cast(b.tensor(), DType::kF32), true)};
    const Variable y = layer_norm(in[0], in[1], in[2]);
    CHECK(y.dtype() == DType::kBF16);
    const Variable loss = sum(mul(cast(y, DType::kF32), Variable(ones({4, 6}))));
    const auto g = grad({&loss, 1}, in, {.create_graph = create_graph});
    CHECK(g[0].dtype() == DType::kBF16);
    CHECK(g[1].dtype() == DType::kF32);
    CHECK(g[2].dtype() == DType::kF32);
    CHECK(values(g[2]) == std::vector<double>(6, 4.0));
  }
}

TEST_CASE("dropout: linear, with the mask of its key") {
  const random::Key key{7};
  const Shape shape{3, 5};
  for (double p : {0.0, 0.4, 1.0}) {
    check_twice([&](const Inputs& in) { return dropout(in[0], p, key, random::whole(shape)); },
                {leaf(shape)});
  }
  const Variable x(ones(shape, {.dtype = DType::kF64}), true);
  const Variable y = dropout(x, 0.4, key, random::whole(shape));
  backward(sum(y));
  CHECK(values(x.grad()) == values(y));
}

TEST_CASE("dropout of a layer: keys by step, layer and call; samples by their global index") {
  const Tensor x = ones({6, 50});
  const auto drop = [&](const Tensor& in, const char* layer) {
    return dropout(Variable(in), {.p = 0.5, .layer = layer}).tensor().to_vector<float>();
  };
  const auto at = [&](const random::StepOptions& step, const Tensor& in, const char* layer) {
    const random::StepScope scope(step);
    return drop(in, layer);
  };
  const auto whole = at({.seed = 1, .step = 2}, x, "a");
  CHECK(at({.seed = 1, .step = 2}, x, "a") == whole);
  CHECK(at({.seed = 2, .step = 2}, x, "a") != whole);
  CHECK(at({.seed = 1, .step = 3}, x, "a") != whole);
  CHECK(at({.seed = 1, .step = 2}, x, "b") != whole);
  {
    const random::StepScope scope({.seed = 1, .step = 2});
    CHECK(drop(x, "a") == whole);
    CHECK(drop(x, "a") != whole);  // the second call
  }
  // Samples 2 to 5 of the same batch, on a rank of their own.
  const auto part = at({.seed = 1, .step = 2, .first_sample = 2}, x.slice(0, 2, 5), "a");
  CHECK(part == std::vector<float>(whole.begin() + 100, whole.begin() + 250));
  // Nothing is drawn where nothing is dropped.
  const random::StepScope scope({.seed = 1, .step = 2});
  const Variable v(x, true);
  CHECK(dropout(v, {.p = 0.5, .training = false}).same_as(v));
  CHECK(dropout(v, {.p = 0, .layer = "a"}).same_as(v));
  CHECK(drop(x, "a") == whole);
  CHECK(dropout(Variable(ones({})), {.p = 1, .layer = "c"}).item<float>() == 0);
}

TEST_CASE("dropout: errors") {
  const Variable x(ones({3}));
  CHECK(thrown<InvalidArgument>([&] { dropout(x, {.p = 1.5, .training = false}); }) ==
        "[dropout] p is 1.5; it must lie in [0, 1]");
  CHECK(thrown<InvalidArgument>([&] { dropout(x, {.p = 0.5}); }) ==
        "[dropout] the layer has no name; give one, its random numbers are found by it");
}

TEST_CASE("rotary: a rotation, turned back by its derivative") {
  for (const ReferenceCase& c : load_reference("rotary")) {
    check_reference(c, {"x"}, [&](const Inputs& in) {
      return rotary(
          in[0], {c.tensor("cos"), c.tensor("sin")},
          {.pairing = c.flag("interleaved") ? RotaryPairing::kNeighbours : RotaryPairing::kHalves});
    });
  }
  const RotaryTable table = rotary_table(3, 4, {.dtype = DType::kF64});
  for (RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kNeighbours}) {
    for (bool inverse : {false, true}) {
      check_twice(
          [&](const Inputs& in) {
            return rotary(in[0], table, {.pairing = pairing, .inverse = inverse});
          },
          {leaf({2, 3, 2, 5})});
    }
  }
}

}  // namespace
}  // namespace tessera::testing
