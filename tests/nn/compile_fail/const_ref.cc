#include <functional>

#include "tessera/nn/layer.h"

struct Net final : tessera::nn::Layer<Net> {
  void forward(const tessera::Variable&) {}
};

void call(Net& net, const tessera::Variable& x) { net(std::cref(x)); }
