#include <vector>

#include "tessera/tessera.h"

tessera::Variable scaled(const std::vector<float>& scale, const tessera::Variable& x) {
  return scale * x;
}
