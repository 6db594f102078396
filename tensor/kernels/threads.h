#pragma once

/// The threads that compute CPU kernels.
///
/// Each thread that starts kernels has helpers of its own. Between kernels a helper watches for the next one for a tenth
/// of a millisecond, then it sleeps. Each thread takes the pieces of its own part of a kernel first, then pieces that are
/// left of the others' parts. So a kernel waits only for helpers that have begun to compute it, not for one that the system
/// has not scheduled: on a busy machine the threads that run do the work.

#include <cstdint>

#include "tessera/tensor/kernels/pieces.h"

namespace tessera {

/// Calls piece(body, i, thread) for each i of [0, pieces), on at most `threads` threads, and at most as many as the rank of
/// the calling thread has (RankContext::threads()). Thread numbers start at 0; within a call a number belongs to one thread.
/// What the pieces wrote is visible when it returns.
///
/// A piece that calls it again runs all pieces of that call itself, if the outer call uses several threads. If pieces
/// throw, it rethrows the first exception; then some pieces may not have run. If the system refuses to start a thread, this
/// call and all later ones use the threads that were started before. A process made by fork() may call it too: it starts
/// threads of its own. Thread-safe.
void run_pieces(std::int64_t pieces, int threads, KernelPiece piece, const void* body);

}  // namespace tessera
