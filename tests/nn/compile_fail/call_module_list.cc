#include "tessera/nn/layers/module_list.h"

void call(tessera::nn::ModuleList& layers, const tessera::Variable& x) { layers(x); }
