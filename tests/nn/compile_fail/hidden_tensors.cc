#include "tessera/nn/layer.h"

struct Batch {
  tessera::Variable x;
};

struct Net final : tessera::nn::Layer<Net> {
  void forward(const Batch&) {}
};

void call(Net& net) { net(Batch{}); }
