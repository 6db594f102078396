// Dropout: how many stay, when it is on, and that the same elements are dropped again.

#include "tessera/nn/layers/dropout.h"

#include <catch2/catch.hpp>

#include "tessera/nn/layers/sequential.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

TEST_CASE("dropout keeps elements with probability 1 - p, and scales them") {
  nn::Dropout layer({.p = 0.25});
  const Variable y = layer(Variable(ones({100, 70})));
  int kept = 0;
  for (double v : values(y.tensor())) {
    CHECK((v == 0 || v == Approx(1 / 0.75)));
    kept += v != 0;
  }
  CHECK(std::abs(kept / 7000.0 - 0.75) < 0.03);
}

TEST_CASE("dropout does nothing in evaluation, and with p = 0") {
  const Variable x = random_input({3, 5}, 1);
  nn::Dropout layer, none({.p = 0}), all({.p = 1});
  CHECK(layer.p() == 0.5);
  layer.eval();
  CHECK(layer(x).same_as(x));
  CHECK(none(x).same_as(x));
  CHECK(values(all(x).tensor()) == std::vector<double>(15, 0));
  layer.train();
  CHECK_FALSE(layer(x).same_as(x));
}

TEST_CASE("what is dropped depends on seed, step, name, call and sample") {
  const Variable x(ones({6, 8}));
  nn::Sequential net, copy;
  for (nn::Sequential* n : {&net, &copy}) {
    n->add<nn::Dropout>();
    n->add<nn::Dropout>();
  }
  const auto run = [&](nn::Sequential& n, int layer, std::uint64_t step, const Variable& in) {
    const random::StepScope scope({.seed = 3, .step = step});
    return values(n.at<nn::Dropout>(layer)(in).tensor());
  };
  const std::vector<double> reference = run(net, 0, 1, x);
  CHECK(run(net, 0, 1, x) == reference);
  CHECK(run(copy, 0, 1, x) == reference);
  CHECK(run(net, 1, 1, x) != reference);
  CHECK(run(net, 0, 2, x) != reference);
  // The last two samples, as another rank has them.
  const random::StepScope scope({.seed = 3, .step = 1, .first_sample = 4});
  const std::vector<double> part = values(net.at<nn::Dropout>(0)(Variable(ones({2, 8}))).tensor());
  CHECK(part == std::vector<double>(reference.begin() + 32, reference.end()));
}

TEST_CASE("dropout: derivatives, zero rows, 16 bits") {
  nn::Dropout layer({.p = 0.4});
  const auto call = [&](const std::vector<Variable>& in) {
    const random::StepScope scope({.seed = 1, .step = 1});
    return layer(in[0]);
  };
  CHECK(grad_check(call, {random_input({4, 3}, 1, true)}).passed);
  CHECK(layer(random_input({0, 3}, 1)).shape() == Shape{0, 3});
  CHECK(layer(Variable(ones({4}, {.dtype = DType::kBF16}))).dtype() == DType::kBF16);
}

TEST_CASE("dropout refuses a p that is no probability") {
  CHECK(thrown<InvalidArgument>([] { nn::Dropout({.p = 1.5}); }) ==
        "[nn.Dropout] p is 1.5; it must lie in [0, 1]");
  CHECK(thrown<InvalidArgument>([] { nn::Dropout({.p = -0.5}); }) ==
        "[nn.Dropout] p is -0.5; it must lie in [0, 1]");
}

}  // namespace
}  // namespace tessera
