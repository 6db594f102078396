#include "tessera/nn/layers/norm.h"

tessera::nn::LayerNorm layer({64});
