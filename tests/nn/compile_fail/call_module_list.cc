#include "tessera/nn/layers/container.h"

void call(tessera::nn::ModuleList& layers, const tessera::Variable& x) { layers(x); }
