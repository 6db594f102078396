// What tests of models, examples and pages include.
#include "tessera/tessera.h"
