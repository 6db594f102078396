#include "tessera/tessera.h"

auto value_of(const tessera::Variable& loss) { return loss.item(); }
