#include "tessera/tessera.h"

void write(tessera::Tensor t, const tessera::Tensor& row) { t[0] = row; }
