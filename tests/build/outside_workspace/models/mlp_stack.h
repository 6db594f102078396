// The user's own header: it has the name of one of Tessera's, and must be the one that
// "models/mlp_stack.h" finds.
#pragma once

#include "tessera/models/mlp_stack.h"

namespace outside {

inline const char* whose() { return "the user's mlp_stack"; }

using TesseraStack = tessera::models::MlpStack;

}  // namespace outside
