#include "tessera/nn/module.h"

auto call(tessera::nn::Module& net, const tessera::Variable& x) { return net(x); }
