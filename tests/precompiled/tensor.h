// What tests of tensor include.
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/trace.h"
