#include "tessera/nn/layers/batch_norm.h"

tessera::nn::BatchNorm2d layer() { return tessera::nn::BatchNorm2d(8); }
