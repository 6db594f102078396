#include "tessera/tessera.h"

auto values_of(const tessera::Variable& x) { return x.to_vector(); }
