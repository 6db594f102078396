// Linear layers train as PyTorch's do.

#include <catch2/catch.hpp>

#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/flatten.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::check_training;
using testing::on_x;
using testing::sequence_on_x;

TEST_CASE("parity: linear") {
  check_training("linear", "Linear", on_x<nn::Linear>({.in = 5, .out = 3}));
  check_training("linear", "Linear without bias, three dims",
                 on_x<nn::Linear>({.in = 5, .out = 3, .bias = false}));
  check_training("linear", "Sequential", sequence_on_x([](nn::Sequential& net) {
                   net.add<nn::Linear>({.in = 5, .out = 11});
                   net.add<nn::ReLU>();
                   net.add<nn::Linear>({.in = 11, .out = 7});
                   net.add<nn::GELU>();
                   net.add<nn::Linear>({.in = 7, .out = 3});
                 }));
}

}  // namespace

namespace {

// Embeddings train as PyTorch's do.

using testing::check_training;

testing::MakeModel embedded(std::int64_t padding_index) {
  return [padding_index] {
    const auto net = std::make_shared<nn::Sequential>();
    net->add<nn::Embedding>({.entries = 11, .dim = 6, .padding_index = padding_index});
    net->add<nn::Linear>({.in = 6, .out = 3});
    return testing::trained(net, [](nn::Sequential& model, const testing::TrainingBatch& batch) {
      return testing::squared_error(model(batch["tokens"]), batch);
    });
  };
}

TEST_CASE("parity: embedding") {
  check_training("embedding", "Embedding", embedded(-1));
  check_training("embedding", "Embedding with padding", embedded(2));
}

}  // namespace

namespace {

// Activations between two linear layers train as PyTorch's do.

using testing::check_training;
using testing::MakeModel;
using testing::sequence_on_x;

// Linear, what `add` adds, Linear.
template <class Add>
MakeModel between(Add add, std::int64_t width = 6) {
  return sequence_on_x([add, width](nn::Sequential& net) {
    net.add<nn::Linear>({.in = 5, .out = 6});
    add(net);
    net.add<nn::Linear>({.in = width, .out = 3});
  });
}
template <class Activation>
MakeModel of() {
  return between([](nn::Sequential& net) { net.add<Activation>(); });
}
template <class Activation>
MakeModel of(const typename Activation::Options& options, std::int64_t width = 6) {
  return between([options](nn::Sequential& net) { net.add<Activation>(options); }, width);
}

void check(const std::string& name, const MakeModel& make) {
  check_training("activation", name, make);
}

TEST_CASE("parity: activations around ReLU") {
  check("ReLU", of<nn::ReLU>());
  check("ReLU6", of<nn::ReLU6>());
  check("LeakyReLU", of<nn::LeakyReLU>({.negative_slope = 0.125}));
  check("PReLU", of<nn::PReLU>({.channels = 6}));
  check("ELU", of<nn::ELU>());
  check("CELU", of<nn::CELU>({.alpha = 0.5}));
  check("SELU", of<nn::SELU>());
  check("Identity", of<nn::Identity>());
}

TEST_CASE("parity: smooth activations") {
  check("GELU", of<nn::GELU>());
  check("GELU by tanh", of<nn::GELU>({.approximate = nn::GELUApproximate::kTanh}));
  check("SiLU", of<nn::SiLU>());
  check("Mish", of<nn::Mish>());
  check("Sigmoid", of<nn::Sigmoid>());
  check("LogSigmoid", of<nn::LogSigmoid>());
  check("Tanh", of<nn::Tanh>());
  check("Softplus", of<nn::Softplus>({.beta = 0.5}));
  check("Softsign", of<nn::Softsign>());
}

TEST_CASE("parity: activations with kinks") {
  check("Hardsigmoid", of<nn::Hardsigmoid>());
  check("Hardswish", of<nn::Hardswish>());
  check("Hardtanh", of<nn::Hardtanh>({.min_val = -0.5, .max_val = 2}));
}

TEST_CASE("parity: activations over a dim") {
  check("Softmax", of<nn::Softmax>());
  check("LogSoftmax", of<nn::LogSoftmax>());
  check("GLU", of<nn::GLU>({}, 3));
}

}  // namespace
}  // namespace tessera
