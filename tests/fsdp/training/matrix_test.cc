// The parity matrix of the stack of perceptrons; see matrix.h.

#include "tessera/tests/fsdp/training/matrix.h"

#include <catch2/catch.hpp>

namespace tessera::testing::matrix {
namespace {

TESSERA_RANK_TEST_WITH("matrix: the stack of perceptrons in f64", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  check_matrix<Mlp>(t, DType::kF64);
}
TESSERA_RANK_TEST_WITH("matrix: the stack of perceptrons in f32", "[fsdp]", {.worlds = {3}}) {
  check_matrix<Mlp>(t, DType::kF32);
}
TESSERA_RANK_TEST_WITH("matrix: the stack of perceptrons with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  check_matrix<Mlp>(t, DType::kF64);
}

}  // namespace

namespace {

// The parity matrix of the Transformer in f64; see matrix.h.
TESSERA_RANK_TEST_WITH("matrix: the Transformer in f64", "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  check_matrix<Stack>(t, DType::kF64);
}
TESSERA_RANK_TEST_WITH("matrix: the Transformer with queued compute", "[fsdp]",
                       {.worlds = {3}, .cpu_compute = StreamKind::kQueued}) {
  check_matrix<Stack>(t, DType::kF64);
}

}  // namespace

namespace {

// The parity matrix of the Transformer in f32, whose bits must be equal like those in f64; see
// matrix.h.
TESSERA_RANK_TEST_WITH("matrix: the Transformer in f32", "[fsdp]", {.worlds = {3}}) {
  check_matrix<Stack>(t, DType::kF32);
}

}  // namespace
}  // namespace tessera::testing::matrix
