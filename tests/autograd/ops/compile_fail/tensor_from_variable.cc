#include "tessera/tessera.h"

tessera::Tensor values_of(const tessera::Variable& x) { return x; }
