#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"

void train(tessera::nn::Linear& model) { tessera::nn::optim::SGD sgd(model, {.lr = 0.1}); }
