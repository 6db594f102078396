#pragma once

/// How a CPU kernel divides its work over threads. The kernels are shared objects of their own: the process passes them
/// the function that runs pieces, run_pieces() in threads.h.

#include <cstdint>

namespace tessera {

/// Computes piece number `piece` of the work that `body` describes, on thread number `thread`; thread 0 has started the
/// kernel.
using KernelPiece = void (*)(const void* body, std::int64_t piece, int thread);

/// Runs all pieces of [0, pieces) on at most `threads` threads.
using RunPieces = void (*)(std::int64_t pieces, int threads, KernelPiece piece, const void* body);

}  // namespace tessera
