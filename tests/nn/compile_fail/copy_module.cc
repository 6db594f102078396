#include "tessera/nn/layers/linear.h"

void copy(tessera::nn::Linear& layer) { tessera::nn::Linear reference = layer; }
