// Linear layers train as PyTorch's do.
#include <catch2/catch.hpp>

#include "tessera/nn/layers/activation.h"
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
}  // namespace tessera
