#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"

tessera::nn::Sequential net(tessera::nn::Linear({3, 4}), tessera::nn::ReLU());
