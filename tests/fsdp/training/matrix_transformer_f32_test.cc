// The parity matrix of the Transformer in f32, whose bits must be equal like those in f64; see
// matrix.h.

#include "tessera/tests/fsdp/training/matrix.h"

#include <catch2/catch.hpp>

namespace tessera::testing::matrix {
namespace {

TESSERA_RANK_TEST_WITH("matrix: the Transformer in f32", "[fsdp]", {.worlds = {3}}) {
  check_matrix<Stack>(t, DType::kF32);
}

}  // namespace
}  // namespace tessera::testing::matrix
