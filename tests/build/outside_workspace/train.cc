// A program outside of Tessera: builds one of its models and takes it forward once.
#include <cstdio>

#include "models/mlp_stack.h"
#include "tessera/tessera.h"
#include "tools/version.h"

int main() {
  outside::TesseraStack model({.in = 4, .hidden = {8}, .classes = 3});
  tessera::nn::initialize(model, {.seed = 1});
  const tessera::Variable logits = model(tessera::Variable(tessera::ones({2, 4})));
  std::printf("%s, %s: %d x %d logits\n", outside::whose(), outside::version(),
              static_cast<int>(logits.shape()[0]), static_cast<int>(logits.shape()[1]));
}
