// The parity matrix in worlds up to 8, and in f32 in all: slow, so a long job runs it; see matrix.h.

#include "tessera/tests/fsdp/training/matrix.h"

#include <catch2/catch.hpp>

namespace tessera::testing::matrix {
namespace {

TESSERA_RANK_TEST_WITH("matrix: the stack of perceptrons in f64, many ranks", "[fsdp]",
                       {.worlds = {5, 6, 7, 8}}) {
  check_matrix<Mlp>(t, DType::kF64);
}
TESSERA_RANK_TEST_WITH("matrix: the stack of perceptrons in f32, few and many ranks", "[fsdp]",
                       {.worlds = {1, 2, 4, 5, 6, 7, 8}}) {
  check_matrix<Mlp>(t, DType::kF32);
}
TESSERA_RANK_TEST_WITH("matrix: the Transformer in f64, many ranks", "[fsdp]",
                       {.worlds = {5, 6, 7, 8}}) {
  check_matrix<Stack>(t, DType::kF64);
}
TESSERA_RANK_TEST_WITH("matrix: the Transformer in f32, few and many ranks", "[fsdp]",
                       {.worlds = {1, 2, 4, 5, 6, 7, 8}}) {
  check_matrix<Stack>(t, DType::kF32);
}
TESSERA_RANK_TEST_WITH("matrix: the Transformer with queued compute, many ranks", "[fsdp]",
                       {.worlds = {2, 8}, .cpu_compute = StreamKind::kQueued}) {
  check_matrix<Stack>(t, DType::kF64);
}

}  // namespace
}  // namespace tessera::testing::matrix
