#include "tessera/tessera.h"

void differentiate(const tessera::Variable& loss) { loss.backward(); }
