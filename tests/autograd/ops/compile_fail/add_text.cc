#include <string>

#include "tessera/tessera.h"

tessera::Variable sum_of(const tessera::Variable& x) { return x + std::string("1"); }
