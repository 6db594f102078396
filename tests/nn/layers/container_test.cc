// Containers: ownership, names, and results.

#include <catch2/catch.hpp>

#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/flatten.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

TEST_CASE("sequential owns its layers, names them by number and calls them with their hooks") {
  nn::Sequential net;
  const Variable x = random_input({4, 3}, 2);
  CHECK(net(x).same_as(x));
  nn::Linear& first = net.add<nn::Linear>({.in = 3, .out = 6, .dtype = DType::kF64});
  net.add<nn::GELU>();
  nn::Sequential& inner = net.add<nn::Sequential>();
  nn::Linear& last =
      inner.add<nn::Linear>(nn::LinearOptions{.in = 6, .out = 2, .dtype = DType::kF64});
  nn::initialize(net);
  CHECK(net.size() == 3);
  CHECK(&net.at(0) == &first);
  CHECK(last.weight().name() == "2.0.weight");
  CHECK(net.named_modules()[4].name == "2.0");
  CHECK_FALSE(net.is_container());
  int calls = 0;
  for (const auto& named : net.named_modules()) {
    named.module->register_forward_pre_hook(
        [&](nn::Module&, const nn::VisitVariables&) { ++calls; });
  }
  CHECK(values(net(x).tensor()) == values(last(gelu(first(x))).tensor()));
  CHECK(calls == 5 + 2);
  CHECK(thrown<InvalidArgument>([&] { net.at(3); }) == "[nn.Sequential] index 3 of 3 layers");
  CHECK(thrown<InvalidArgument>([&] { net.at(-1); }) == "[nn.Sequential] index -1 of 3 layers");
}

TEST_CASE("sequential knows the types of its layers, and takes functions and layers that exist") {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 3, .out = 2, .dtype = DType::kF64});
  net.add([](const Variable& x) { return x * 2; });
  nn::ReLU& existing = net.append(std::make_unique<nn::ReLU>());
  nn::initialize(net);
  const Variable x = random_input({4, 3}, 2);
  CHECK(&net.at<nn::ReLU>(2) == &existing);
  CHECK(values(net(x).tensor()) == values(relu(net.at<nn::Linear>(0)(x) * 2).tensor()));
  CHECK(thrown<InvalidArgument>([&] { net.at<nn::Linear>(1); }) ==
        "[nn.Sequential] \"1\" is a Lambda, not a Linear");
  CHECK(thrown<InvalidArgument>([&] { net.at<nn::Linear>(3); }) ==
        "[nn.Sequential] index 3 of 3 layers");
  CHECK(thrown<InvalidArgument>([&] { net.append(std::unique_ptr<nn::ReLU>()); }) ==
        "[nn.Sequential] layer 3 is null");
  CHECK(thrown<InvalidArgument>([&] { net.add(nn::Lambda::Function()); }) ==
        "[nn.Lambda] the function is empty");
  CHECK(net.size() == 3);
}

struct Stack final : nn::Layer<Stack> {
  Stack() {
    for (int i = 0; i < 3; ++i) layers.add<nn::Linear>({.in = 2, .out = 2, .dtype = DType::kF64});
    register_module("layers", layers);
    heads.add<nn::Linear>("wide", {.in = 2, .out = 5, .dtype = DType::kF64});
    heads.add<nn::GELU>("bend");
    register_module("heads", heads);
  }
  Variable forward(Variable x) {
    for (nn::Linear& layer : layers.as<nn::Linear>()) x = layer(x);
    return heads.at<nn::GELU>("bend")(heads.at<nn::Linear>("wide")(x));
  }
  nn::ModuleList layers;
  nn::ModuleDict heads;
};

TEST_CASE("a module list holds modules by number") {
  Stack stack;
  nn::initialize(stack);
  CHECK(stack.layers.is_container());
  CHECK(stack.layers.size() == 3);
  CHECK_FALSE(stack.layers.empty());
  CHECK(nn::ModuleList().empty());
  CHECK(stack.layers.at<nn::Linear>(2).weight().name() == "layers.2.weight");
  int seen = 0;
  for (nn::Module& module : stack.layers) CHECK(&module == &stack.layers.at(seen++));
  CHECK(seen == 3);
  nn::GELU& added = stack.layers.append(std::make_unique<nn::GELU>());
  CHECK(&stack.layers.at(3) == &added);
  CHECK(thrown<InvalidArgument>([&] { stack.layers.at<nn::Linear>(3); }) ==
        "[nn.ModuleList] \"3\" is a GELU, not a Linear");
  CHECK(thrown<InvalidArgument>([&] { stack.layers.as<nn::Linear>(); }) ==
        "[nn.ModuleList] \"3\" is a GELU, not a Linear");
  CHECK(thrown<InvalidArgument>([&] { stack.layers.at(4); }) ==
        "[nn.ModuleList] index 4 of 4 modules");
  CHECK(thrown<InvalidArgument>([&] { stack.layers.append(std::unique_ptr<nn::GELU>()); }) ==
        "[nn.ModuleList] module 4 is null");
}

TEST_CASE("a module dict holds modules by name, in their order") {
  Stack stack;
  nn::initialize(stack);
  CHECK(stack.heads.is_container());
  CHECK(stack.heads.size() == 2);
  CHECK_FALSE(stack.heads.empty());
  CHECK(stack.heads.names() == std::vector<std::string>{"wide", "bend"});
  CHECK(stack.heads.contains("bend"));
  CHECK_FALSE(stack.heads.contains("Bend"));
  CHECK(stack.heads.at<nn::Linear>("wide").weight().name() == "heads.wide.weight");
  CHECK(stack.heads.children()[1].name == "bend");
  nn::ReLU& added = stack.heads.insert("more", std::make_unique<nn::ReLU>());
  CHECK(&stack.heads.at("more") == &added);
  CHECK(thrown<InvalidArgument>([&] { stack.heads.at<nn::Linear>("bend"); }) ==
        "[nn.ModuleDict] \"bend\" is a GELU, not a Linear");
  CHECK(thrown<InvalidArgument>([&] { stack.heads.at("left"); }) ==
        "[nn.ModuleDict] no module \"left\"; there are: wide, bend, more");
  CHECK(thrown<InvalidArgument>([&] { stack.heads.insert("x", std::unique_ptr<nn::GELU>()); }) ==
        "[nn.ModuleDict] module \"x\" is null");
  CHECK(thrown<InvalidArgument>([&] {
          stack.heads.add<nn::GELU>("wide");
        }).find("has a member \"wide\" already") != std::string::npos);
  CHECK(stack.heads.size() == 3);
}

TEST_CASE("modules in lists and dicts are trained like others") {
  Stack stack;
  nn::initialize(stack);
  CHECK(stack.parameters().size() == 8);
  CHECK(testing::check_gradients(stack, random_input({3, 2}, 5)) == "");
}

TEST_CASE("identity, flatten and unflatten") {
  nn::Identity identity;
  const Variable x = random_input({2, 3, 4, 5}, 1);
  CHECK(identity(x).same_as(x));
  nn::Flatten flat, middle({.first = 1, .last = 2});
  CHECK(flat(x).shape() == Shape{2, 60});
  CHECK(values(flat(x).tensor()) == values(x.tensor()));
  CHECK(middle(x).shape() == Shape{2, 12, 5});
  CHECK(flat(random_input({0, 3, 4}, 1)).shape() == Shape{0, 12});
  const Variable turned = transpose(x, 1, 3);
  CHECK(values(flat(turned).tensor()) == values(contiguous(turned).tensor()));
  nn::Unflatten back({.dim = 1, .extents = {3, 4, -1}});
  CHECK(back(flat(x)).shape() == x.shape());
  nn::Unflatten last({.dim = -1, .extents = {5, 1}});
  CHECK(last(x).shape() == Shape{2, 3, 4, 5, 1});
  CHECK(testing::check_gradients(flat, x) == "");
  CHECK(testing::check_gradients(last, x) == "");
  CHECK(thrown<InvalidArgument>([] { nn::Unflatten({.dim = 2, .extents = {}}); }) ==
        "[nn.Unflatten] extents of dim 2 are missing");
}

TEST_CASE("an MLP learns") {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 2, .out = 16});
  net.add<nn::GELU>();
  net.add<nn::Linear>({.in = 16, .out = 2});
  nn::initialize(net, {.seed = 1});
  nn::optim::SGD optimizer(net.parameters(), {.lr = 0.5, .momentum = 0.9});
  const Variable x(Tensor::from_vector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}));
  const Tensor y = Tensor::from_vector<std::int64_t>({0, 1, 1, 0}, {4});
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const Variable loss = cross_entropy(net(x), y);
    last = loss.item<float>();
    if (step == 0) first = last;
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(first > 0.6f);
  CHECK(last < 0.01f);
}

}  // namespace
}  // namespace tessera
