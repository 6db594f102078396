#include "tessera/tessera.h"

void write(tessera::Variable v) { v[0] = 1; }
