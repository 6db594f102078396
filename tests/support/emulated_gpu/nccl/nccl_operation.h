#pragma once

/// What one rank asks of the emulated NCCL, and the arithmetic of it once all ranks have asked.
///
/// Sums run in the order of the ranks, and round to the buffers' type after each addition, as
/// NCCL's rings do.

#include <nccl.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tessera::emulated::nccl {

enum class Kind { kAllReduce, kReduce, kReduceScatter, kBroadcast, kAllGather, kSend, kRecv };
const char* name_of(Kind kind);
inline bool is_point_to_point(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }
inline bool is_reduction(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

/// How numbers are combined: a built-in operator, or the sum of scaled values.
struct Reduction {
  ncclRedOp_t op = ncclSum;
  bool scaled = false;
  ncclDataType_t factor_type = ncclFloat32;  // must be the operation's
  std::array<char, 8> factor{};              // in the buffers' type
};

/// Where a buffer lies in a symmetric window: all ranks must use one offset of one window.
struct WindowPlace {
  int window = 0;  // the communicator's count of registrations
  std::size_t offset = 0;
  bool operator==(const WindowPlace&) const = default;
};

struct Operation {
  Kind kind = Kind::kAllReduce;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;  // elements, as the function of the API counts them
  ncclDataType_t type = ncclFloat32;
  int peer = 0;  // root, or the other side
  Reduction reduction;
  std::optional<WindowPlace> send_window, recv_window;
};

/// Bytes of one element; 0 for a type that is invalid or that Tessera does not use.
std::size_t size_of(ncclDataType_t type);

/// Bytes that the rank reads and writes.
struct Extents {
  std::size_t send = 0, recv = 0;
};
Extents extents_of(const Operation& operation, int rank, int ranks);

/// What keeps the ranks' operations from being one; empty where nothing does.
std::string disagreement(const Operation& a, const Operation& b);

/// Does what the ranks asked for; `by_rank` agree. Collectives only.
void complete(const std::vector<const Operation*>& by_rank);

/// Fills what a rank was to receive with bytes of ones: what an interrupted operation leaves.
void spoil(const Operation& operation, int rank, int ranks);

}  // namespace tessera::emulated::nccl
