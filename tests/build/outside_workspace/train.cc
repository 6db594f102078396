// A program outside of Tessera: runs a layer forward, and backward from the loss.
#include <cstdio>

#include "nn/training/loss.h"
#include "tessera/autograd/engine.h"
#include "tools/version.h"

int main() {
  tessera::nn::Linear model({.in = 4, .out = 3});
  tessera::nn::initialize(model, {.seed = 1});
  const tessera::Variable y = model(tessera::Variable(tessera::ones({2, 4})));
  tessera::backward(outside::loss(y));
  std::printf("%s, %s: %d x %d outputs, %d gradients\n", outside::whose(), outside::version(),
              static_cast<int>(y.shape()[0]), static_cast<int>(y.shape()[1]),
              static_cast<int>(model.weight().grad().numel()));
}
