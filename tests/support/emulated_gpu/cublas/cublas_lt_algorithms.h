#pragma once

/// The emulated library's algorithms for matrix products, and what each demands. There are three,
/// which differ in what callers get wrong on a GPU:
///
///   plain   any addresses and leading dimensions that suit the element type; no workspace
///   vector  pointers, leading dimensions and batch strides of 16 bytes; no workspace
///   split   as vector, and the sum over k in several parts, which lie in the workspace
///
/// An algorithm keeps the types it was chosen for, and the alignment that the bias and the
/// auxiliary matrix had then.

#include <cstdint>

#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_problem.h"

namespace tessera::emulated::cublas {

enum AlgorithmId : std::int32_t { kPlain = 0, kVector = 21, kSplit = 66 };

struct Algorithm {
  static constexpr std::uint32_t kMark = 0x6c74'0004;

  std::uint32_t mark = kMark;
  std::int32_t id = kPlain;
  std::int32_t compute_type = 0, scale_type = 0;
  std::uint16_t a_type = 0, b_type = 0, c_type = 0, d_type = 0;
  std::uint16_t bias_alignment = 16, aux_alignment = 16;  // bytes
  std::int32_t splits = 1;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// The content; null where the struct was never set up.
const Algorithm* content(const cublasLtMatmulAlgo_t* algorithm);

/// Whether the algorithm can do this product, addresses aside.
Verdict check_algorithm(const Algorithm& algorithm, const Problem& problem);

/// Bytes of workspace that it needs.
std::size_t workspace_bytes(const Algorithm& algorithm, const Problem& problem);

/// What a pointer to A, B, C or D must be a multiple of.
std::size_t pointer_alignment(const Algorithm& algorithm, const MatrixLayout& layout);

/// The best one by the default preferences: what a call without an algorithm gets.
Algorithm default_algorithm(const Problem& problem);

/// Where the context of a handle is: the device on which it was created.
struct Handle {
  int device = 0;
};
/// Null, after saying why, for a handle that is none or of another device than the current one.
const Handle* check_handle(const char* function, cublasLtHandle_t handle);

}  // namespace tessera::emulated::cublas
