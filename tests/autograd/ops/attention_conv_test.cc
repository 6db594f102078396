// Attention, convolution and pooling of variables: derivatives against differences, slots, draws of
// dropout.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

Inputs attention_inputs(const Shape& q, const Shape& k, const Shape& v) {
  return {leaf(q), leaf(k, -1, 1, 0.6), leaf(v, -1, 1, 0.9)};
}

TestedFunction attend(const AttentionLayerOptions& options) {
  return [options](const Inputs& in) {
    const random::StepScope step({.seed = 1});  // each call draws the same numbers
    return scaled_dot_product_attention(in[0], in[1], in[2], options);
  };
}

TEST_CASE("attention: the derivative under every rule") {
  const Tensor hidden = Tensor::from_vector<bool>({true, false, true, true, false, true, true, true,
                                                   false, false, false, false, true, true, true},
                                                  {3, 5});
  const AttentionLayerOptions all[] = {
      {},
      {.causal = true},
      {.causal = true, .alignment = CausalAlignment::kBottomRight, .scale = 0.8},
      {.mask = hidden},
      {.mask = irregular({4, 1, 5})},
      {.causal = true, .dropout_p = 0.4, .layer = "a"}};
  for (const AttentionLayerOptions& options : all) {
    check_once(attend(options), attention_inputs({2, 4, 3, 3}, {2, 2, 5, 3}, {2, 2, 5, 2}));
  }
  check_once(attend({}), attention_inputs({2, 3, 4}, {1, 5, 4}, {1, 5, 1}));
  check_once(attend({.causal = true}), attention_inputs({0, 2, 3, 4}, {0, 2, 5, 4}, {0, 2, 5, 4}));
  check_once(attend({}), attention_inputs({1, 2, 3, 4}, {1, 2, 0, 4}, {1, 2, 0, 4}));
}

TEST_CASE("attention: heads split off by a transpose, one tensor three times") {
  check_once(
      [](const Inputs& in) {
        const Variable heads = transpose(view(in[0], {2, 3, 2, 4}), 1, 2);
        const Variable y = scaled_dot_product_attention(heads, heads, heads, {.causal = true});
        return view(transpose(y, 1, 2), {2, 3, 8});  // the output lies so that this is no copy
      },
      {leaf({2, 3, 8})});
}

TEST_CASE("attention: the derivative is not differentiable again") {
  const Inputs in = attention_inputs({1, 3, 4}, {1, 5, 4}, {1, 5, 4});
  const Variable y = sum(scaled_dot_product_attention(in[0], in[1], in[2]));
  CHECK_THROWS_AS(backward(y, {.create_graph = true}), StateError);
}

TEST_CASE("attention: an overwritten operand or mask is noticed") {
  for (int which = 0; which < 4; ++which) {
    const Inputs in = attention_inputs({1, 3, 4}, {1, 5, 4}, {1, 5, 4});
    const Tensor mask = irregular({3, 5});
    const Variable y = sum(scaled_dot_product_attention(in[0], in[1], in[2], {.mask = mask}));
    fill_(which < 3 ? in[static_cast<std::size_t>(which)].tensor() : mask, 0);
    CHECK_THROWS_AS(backward(y), StateError);
  }
}

TEST_CASE("attention: dropout draws by layer, call and sample, and only while training") {
  const Inputs in = attention_inputs({4, 1, 3, 4}, {4, 1, 9, 4}, {4, 1, 9, 4});
  const auto run = [&](const AttentionLayerOptions& options) {
    return values(scaled_dot_product_attention(in[0], in[1], in[2], options));
  };
  const AttentionLayerOptions a{.dropout_p = 0.5, .layer = "a"}, b{.dropout_p = 0.5, .layer = "b"};
  std::vector<double> first, second, other;
  {
    const random::StepScope step({.seed = 3, .step = 1});
    first = run(a);
    second = run(a);
    other = run(b);
  }
  CHECK(first != second);
  CHECK(first != other);
  {
    const random::StepScope step({.seed = 3, .step = 1});
    CHECK(run(a) == first);
  }
  // Samples 2 and 3 alone, on a rank that begins there.
  const random::StepScope step({.seed = 3, .step = 1, .first_sample = 2});
  const Inputs half = {slice(in[0], 0, 2, 4), slice(in[1], 0, 2, 4), slice(in[2], 0, 2, 4)};
  const auto rest = values(scaled_dot_product_attention(half[0], half[1], half[2], a));
  CHECK(rest == std::vector<double>(first.begin() + 24, first.end()));
  // Nothing is drawn where nothing is dropped.
  const random::State before = random::capture();
  const auto plain = run({});
  CHECK(run({.dropout_p = 0.5, .training = false, .layer = "a"}) == plain);
  CHECK(random::capture().calls.size() == before.calls.size());
  // A box of one's own: head 1 of 2.
  const AttentionLayerOptions boxed{
      .dropout_p = 0.5, .layer = "c", .box = {.global = {4, 2, 3, 9}, .offset = {0, 1, 0, 0}}};
  CHECK(run(boxed) != plain);
  CHECK(
      thrown<InvalidArgument>([&] { run({.dropout_p = 0.5}); }) ==
      "[scaled_dot_product_attention] dropout_p is 0.5, but layer is empty; name the layer, whose "
      "draws are counted");
}

struct ConvCase {
  Shape x, weight;
  Conv2dOptions options;
};

TEST_CASE("conv2d: derivatives, twice") {
  for (const ConvCase& c :
       {ConvCase{{2, 3, 4, 3}, {2, 3, 2, 3}, {.padding = 1}},
        ConvCase{{1, 4, 5, 4}, {4, 2, 3, 1}, {.stride = 2, .padding = {2, 0}, .groups = 2}},
        ConvCase{{1, 2, 5, 5}, {2, 1, 2, 2}, {.stride = {1, 2}, .dilation = 2, .groups = 2}},
        ConvCase{{0, 1, 3, 3}, {2, 1, 2, 2}, {}}}) {
    const Inputs inputs = {leaf(c.x), leaf(c.weight, -1, 1, 0.6), leaf({c.weight[0]}, -1, 1, 0.9)};
    const Variable y = conv2d(inputs[0], inputs[1], inputs[2], c.options);
    CHECK(values(y) ==
          values(conv2d(inputs[0].tensor(), inputs[1].tensor(), inputs[2].tensor(), c.options)));
    check_twice([&](const Inputs& in) { return conv2d(in[0], in[1], in[2], c.options); }, inputs);
    check_twice([&](const Inputs& in) { return conv2d(in[0], in[1], {}, c.options); },
                {inputs[0], inputs[1]});
  }
  const Variable x(irregular({2, 2, 4, 4})), w(irregular({3, 2, 2, 2}));
  check_twice([&](const Inputs& in) { return conv2d(x, in[0], in[1]); },
              {leaf({3, 2, 2, 2}), leaf({3})});
  check_twice([&](const Inputs& in) { return conv2d(in[0], w, {}); }, {leaf({2, 2, 4, 4})});
  // The gradient of a sum has strides of zero.
  check_twice([&](const Inputs& in) { return sum(conv2d(in[0], in[1], {})); },
              {leaf({1, 2, 3, 3}), leaf({3, 2, 2, 2})});
}

TEST_CASE("conv1d: derivatives, twice") {
  const Conv1dOptions options{.stride = 2, .padding = 2, .dilation = 2, .groups = 2};
  check_twice([&](const Inputs& in) { return conv1d(in[0], in[1], in[2], options); },
              {leaf({2, 4, 6}), leaf({2, 2, 3}, -1, 1, 0.6), leaf({2}, -1, 1, 0.9)});
  CHECK_THROWS_AS(conv1d(leaf({2, 4, 6, 1}), leaf({2, 4, 1, 1}), {}), InvalidArgument);
}

TEST_CASE("conv2d in f32: written into the gradient, and added to it") {
  const auto f32 = [](const Shape& shape) {
    return Variable(cast(irregular(shape), DType::kF32), true);
  };
  const Variable w = f32({3, 2, 3, 3}), b = f32({3}), x = f32({2, 2, 6, 5});
  backward(sum(square(conv2d(x, w, b))));
  const auto once = values(w.grad()), once_b = values(b.grad());
  const void* const slot = w.grad().storage().data();
  backward(sum(square(conv2d(x, w, b))));
  CHECK(w.grad().storage().data() == slot);
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(values(w.grad())[i] == Approx(2 * once[i]));
  for (std::size_t i = 0; i < once_b.size(); ++i)
    CHECK(values(b.grad())[i] == Approx(2 * once_b[i]));
}

TEST_CASE("16-bit dtypes: gradients of every operand, near those in f32") {
  const auto gradients = [](DType dtype) {
    const auto make = [&](const Shape& shape, double seed) {
      return Variable(cast(cast(irregular(shape, -1, 1, seed), DType::kBF16), dtype), true);
    };
    const Variable x = make({2, 3, 6, 5}, 0.1), w = make({4, 3, 3, 3}, 0.6), b = make({4}, 0.9);
    const Variable y =
        avg_pool2d(max_pool2d(conv2d(x, w, b, {.padding = 1}), {.kernel = 2}), {.kernel = {3, 2}});
    const Variable heads = view(y, {2, 2, 2, 1});
    backward(sum(scaled_dot_product_attention(heads, heads, heads, {.causal = true})));
    std::vector<double> all;
    for (const Variable& leaf : {x, w, b}) {
      CHECK(leaf.grad().dtype() == dtype);
      for (double value : values(leaf.grad())) all.push_back(value);
    }
    return all;
  };
  const std::vector<double> f32 = gradients(DType::kF32), bf16 = gradients(DType::kBF16);
  for (std::size_t i = 0; i < f32.size(); ++i)
    CHECK(bf16[i] == Approx(f32[i]).epsilon(0.05).margin(0.05));
}

TEST_CASE("attention: the gradients of heads of one projection are one tensor, without copies") {
  struct Layout {
    Shape rows;  // of the projection, with heads and width
    bool batch_first;
    std::int64_t heads, kv_heads;
  };
  for (const Layout& layout : {Layout{{2, 5, 12}, true, 2, 1}, Layout{{5, 2, 12}, false, 2, 1},
                               Layout{{2, 3, 36}, true, 3, 3}, Layout{{1, 4, 12}, true, 2, 2},
                               Layout{{4, 1, 12}, true, 2, 2}, Layout{{1, 1, 9}, true, 1, 1},
                               Layout{{0, 3, 9}, true, 1, 1}}) {
    const std::int64_t width = layout.rows[2] / (layout.heads + 2 * layout.kv_heads);
    const auto attention = [&](const Inputs& in, bool split_once) {
      const std::int64_t sizes[] = {layout.heads * width, layout.kv_heads * width,
                                    layout.kv_heads * width};
      std::vector<Variable> parts;
      if (split_once) {
        parts = split(in[0], {sizes[0], sizes[1], sizes[2]}, -1);
      } else {
        std::int64_t begin = 0;
        for (const std::int64_t size : sizes) {
          parts.push_back(narrow(in[0], 2, begin, size));
          begin += size;
        }
      }
      for (Variable& part : parts) {
        part = unflatten(part, 2, {part.dim(2) / width, width});
        if (!layout.batch_first) part = transpose(part, 0, 1);
        part = transpose(part, 1, 2);
      }
      return scaled_dot_product_attention(parts[0], parts[1], parts[2], {.causal = true});
    };
    check_once([&](const Inputs& in) { return attention(in, true); }, {leaf(layout.rows)});
    const Variable once = leaf(layout.rows), apart = leaf(layout.rows);
    const Variable y = sum(square(attention({once}, true)));
    ExecutionTrace trace;
    {
      const TraceScope recording(trace);
      backward(y);
    }
    backward(sum(square(attention({apart}, false))));
    CHECK(values(once.grad()) == values(apart.grad()));
    int copies = 0;
    for (const KernelRecord& record : trace.all<KernelRecord>())
      copies += record.operation == "copy";
    if (layout.rows[0] * layout.rows[1] > 1) CHECK(copies == 1);  // into the leaf
  }
}

TEST_CASE(
    "split: gradients that lie beside each other are joined without a copy, others with one") {
  const Tensor whole = irregular({2, 7}), apart = irregular({2, 3}, -1, 1, 0.4);
  const auto gradient = [&](const Tensor& first, const Tensor& second) {
    const Variable x = leaf({2, 7});
    const Variable inner = x * 1.0;
    const std::vector<Variable> parts = split(inner, {4, 3}, 1);
    const Tensor gradients[] = {first, second};
    backward(std::span(parts), gradients);
    return values(x.grad());
  };
  const Tensor left = whole.narrow(1, 0, 4), right = whole.narrow(1, 4, 3);
  CHECK(gradient(left, right) == values(whole));
  CHECK(gradient(left, apart) == values(cat({left, apart}, 1)));
  // In one storage, but in another order, overlapping, or as another matrix.
  CHECK(gradient(whole.narrow(1, 3, 4), whole.narrow(1, 0, 3)) ==
        values(cat({whole.narrow(1, 3, 4), whole.narrow(1, 0, 3)}, 1)));
  CHECK(gradient(left, whole.narrow(1, 3, 3)) == values(cat({left, whole.narrow(1, 3, 3)}, 1)));
  const Tensor other = irregular({14}).narrow(0, 8, 6).view({2, 3});
  CHECK(gradient(left, other) == values(cat({left, other}, 1)));
}

TEST_CASE("conv2d: the weight's gradient goes into the slot, without a tensor in between") {
  ExecutionTrace trace;
  const Variable w(cast(irregular({3, 2, 3, 3}), DType::kF32), true),
      x(cast(irregular({1, 2, 4, 4}), DType::kF32));
  const Variable y = sum(conv2d(x, w, {}));
  {
    const TraceScope recording(trace);
    backward(y);
  }
  int kernels = 0;
  for (const KernelRecord& record : trace.all<KernelRecord>()) {
    if (record.name != "conv_backward_weight") continue;
    ++kernels;
    CHECK(record.writes.at(0).storage == w.grad().storage().id());
  }
  CHECK(kernels == 1);
}

TEST_CASE("pooling: derivatives; those of means twice") {
  const Inputs plane = {leaf({2, 2, 5, 6})}, line = {leaf({2, 3, 7})};
  check_once(
      [](const Inputs& in) {
        return max_pool2d(in[0], {.kernel = {3, 2}, .stride = {1, 2}, .padding = 1});
      },
      plane);
  check_once(
      [](const Inputs& in) {
        return max_pool1d(in[0], {.kernel = 3, .stride = 2, .ceil_mode = true});
      },
      line);
  check_once([](const Inputs& in) { return adaptive_max_pool2d(in[0], {2, 4}); }, plane);
  check_once([](const Inputs& in) { return adaptive_max_pool1d(in[0], 3); }, line);
  check_twice(
      [](const Inputs& in) {
        return avg_pool2d(in[0], {.kernel = 3, .stride = {1, 2}, .padding = 1});
      },
      plane);
  check_twice(
      [](const Inputs& in) {
        return avg_pool1d(in[0],
                          {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false});
      },
      line);
  check_twice([](const Inputs& in) { return adaptive_avg_pool2d(in[0], {2, 4}); }, plane);
  check_twice([](const Inputs& in) { return adaptive_avg_pool1d(in[0], 3); }, line);
  // Not linear: the second derivative is not zero.
  check_twice([](const Inputs& in) { return square(avg_pool2d(in[0], {.kernel = 2})); }, plane);
  CHECK(values(max_pool1d(line[0], {.kernel = 2})) ==
        values(max_pool1d(line[0].tensor(), {.kernel = 2}).output));
  CHECK(values(adaptive_avg_pool2d(plane[0], 1)) ==
        values(adaptive_avg_pool2d(plane[0].tensor(), 1)));
  check_once([](const Inputs& in) { return max_pool2d(in[0], {.kernel = 2}); },
             {leaf({0, 2, 4, 4})});
}

}  // namespace
}  // namespace tessera::testing
