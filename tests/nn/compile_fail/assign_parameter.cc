#include "tessera/nn/parameter.h"

void assign(tessera::nn::Parameter& a, const tessera::nn::Parameter& b) { a = b; }
