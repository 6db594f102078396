#include "tessera/nn/layers/conv.h"

class Net {
  tessera::nn::Conv2d conv_{1, 8, 3, 2};
};
Net net;
