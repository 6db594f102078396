#include "tessera/tests/build/refuses_int.h"

Refuses<int> refused;
