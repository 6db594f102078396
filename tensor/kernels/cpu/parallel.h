#pragma once

/// The distribution of a kernel's work over threads.

#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/pieces.h"

namespace tessera::cpu {

/// Elements that one thread takes at a time. A single piece is computed on the calling thread:
/// waking threads would cost more.
inline constexpr std::int64_t kPiece = 1 << 15;

/// What the process passed to the entry function of these kernels.
inline RunPieces process_run_pieces = nullptr;

inline constexpr int kAllThreads = std::numeric_limits<int>::max();
/// How many threads may share work on this many elements.
inline int threads_for(std::int64_t elements) { return elements > kPiece ? kAllThreads : 1; }

/// body(piece) or body(piece, thread) for each piece of [0, pieces), on at most `threads` threads of the rank, numbered
/// from 0. Rethrows the first exception.
template <class Body>
void parallel_for(std::int64_t pieces, int threads, const Body& body) {
  const auto run = [](const void* context, std::int64_t piece, int thread) {
    const Body& compute = *static_cast<const Body*>(context);
    if constexpr (std::is_invocable_v<const Body&, std::int64_t, int>) {
      compute(piece, thread);
    } else {
      compute(piece);
    }
  };
  if (pieces > 1 && threads > 1) return process_run_pieces(pieces, threads, run, &body);
  for (std::int64_t piece = 0; piece < pieces; ++piece) run(&body, piece, 0);
}
template <class Body>
void parallel_for(std::int64_t pieces, const Body& body) {
  parallel_for(pieces, kAllThreads, body);
}

}  // namespace tessera::cpu
