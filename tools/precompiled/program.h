// Precompiled for programs that use all of Tessera (tessera_program).
#include "tessera/tessera.h"
