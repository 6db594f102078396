#include "tessera/tessera.h"

auto values_of(const tessera::Variable& x) { return x.tensor().to_vector(); }
