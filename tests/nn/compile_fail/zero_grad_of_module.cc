#include "tessera/nn/layers/linear.h"

void clear(tessera::nn::Linear& model) { model.zero_grad(); }
