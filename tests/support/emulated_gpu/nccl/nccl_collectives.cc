// The functions of nccl.h that move numbers, and what they refuse.

#include <fmt/core.h>

#include <cstring>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_group.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::nccl {
namespace {

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

// Whether the buffers lie as the documentation of the function calls "in place".
bool is_in_place(const Operation& o, int rank) {
  const auto* send = static_cast<const char*>(o.send);
  const auto* recv = static_cast<const char*>(o.recv);
  const std::size_t block = o.count * size_of(o.type) * rank;
  if (o.kind == Kind::kAllGather) return send == recv + block;
  if (o.kind == Kind::kReduceScatter) return recv == send + block;
  return send == recv;
}

std::string check_buffer(const char* name, const void* at, std::size_t bytes, ncclDataType_t type) {
  if (bytes == 0) return {};
  if (at == nullptr) return fmt::format("{} is null", name);
  if (reinterpret_cast<std::uintptr_t>(at) % size_of(type) != 0) {
    return fmt::format("{} at {} cuts its elements", name, at);
  }
  if (is_device_memory(at, bytes)) return {};
  return fmt::format("{}: {} bytes at {} are no memory of the GPU", name, bytes, at);
}

std::string check_buffers(const Operation& o, int rank, int ranks) {
  const Extents extents = extents_of(o, rank, ranks);
  std::string why = check_buffer("sendbuff", o.send, extents.send, o.type);
  if (why.empty()) why = check_buffer("recvbuff", o.recv, extents.recv, o.type);
  const bool both = extents.send != 0 && extents.recv != 0;
  if (why.empty() && both && overlap(o.send, extents.send, o.recv, extents.recv) &&
      !is_in_place(o, rank)) {
    why = "sendbuff and recvbuff overlap, and not as in place";
  }
  return why;
}

// The operator with what it was made of; false where it is none of this communicator.
bool resolve(const Communicator& me, ncclRedOp_t op, Reduction& to) {
  to.op = op;
  if (op >= 0 && op < ncclNumOps) return true;
  const auto made = me.reductions.find(op);
  if (made == me.reductions.end()) return false;
  to = made->second;
  return true;
}

std::string check(const Communicator& me, const Operation& o) {
  if (size_of(o.type) == 0) return fmt::format("type {} is not emulated", static_cast<int>(o.type));
  if (o.peer < 0 || o.peer >= me.size()) {
    return fmt::format("there is no rank {} of {}", o.peer, me.size());
  }
  return check_buffers(o, me.rank, me.size());
}

std::optional<WindowPlace> place_of(const Communicator& me, const void* at) {
  for (const auto& [handle, window] : me.windows) {
    const auto* byte = static_cast<const char*>(at);
    if ((window.flags & NCCL_WIN_COLL_SYMMETRIC) != 0 && byte >= window.at &&
        byte < window.at + window.bytes) {
      return WindowPlace{static_cast<int>(window.number),
                         static_cast<std::size_t>(byte - window.at)};
    }
  }
  return std::nullopt;
}

// Which buffers the others reach into: those must lie alike.
void place_windows(const Communicator& me, Operation& o) {
  const bool reads = o.kind == Kind::kAllReduce || o.kind == Kind::kReduceScatter;
  const bool writes = o.kind == Kind::kAllReduce || o.kind == Kind::kAllGather;
  if (reads) o.send_window = place_of(me, o.send);
  if (writes) o.recv_window = place_of(me, o.recv);
}

struct Call {
  const char* function;
  ncclComm_t comm;
  cudaStream_t stream;
};

ncclResult_t enqueue(const Call& call, Operation o, ncclRedOp_t op = ncclSum) {
  const auto me = find(call.function, call.comm);
  if (me == nullptr) return note_error(ncclInvalidArgument);
  if (const ncclResult_t bad = check_ready(call.function, *me); bad != ncclSuccess) {
    return note_error(bad);
  }
  std::string why = check(*me, o);
  if (why.empty() && is_reduction(o.kind) && !resolve(*me, op, o.reduction)) {
    why = fmt::format("operator {} is none of this communicator", static_cast<int>(op));
  }
  if (why.empty() && o.reduction.scaled && o.reduction.factor_type != o.type) {
    why = "the operator's scalar is of another type";
  }
  int device = me->device;
  if (why.empty() && call.stream != nullptr &&
      (cudaStreamGetDevice(call.stream, &device) != cudaSuccess || device != me->device)) {
    why = fmt::format("the communicator is of GPU {}, the stream of {}", me->device, device);
  }
  if (!why.empty()) return note_error(refuse(call.function, ncclInvalidArgument, why));
  // No rank has anything to do: such collectives do not count.
  if (o.count == 0 && !is_point_to_point(o.kind)) return ncclSuccess;
  place_windows(*me, o);
  return note_error(add_operation(me, o, call.stream));
}

Operation make(Kind kind, const void* send, void* recv, std::size_t count, ncclDataType_t type,
               int peer = 0) {
  Operation o;
  o.kind = kind;
  o.send = send, o.recv = recv;
  o.count = count, o.type = type;
  o.peer = peer;
  return o;
}

int next_operator() {
  static std::mutex mutex;
  static int made = ncclNumOps;
  const std::lock_guard lock(mutex);
  return made++;
}

}  // namespace
}  // namespace tessera::emulated::nccl

extern "C" {

using namespace tessera::emulated;        // NOLINT: what follows is the API itself
using namespace tessera::emulated::nccl;  // NOLINT: likewise

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kAllReduce, send, recv, count, type), op);
}
ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kReduce, send, recv, count, type, root), op);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kReduceScatter, send, recv, count, type), op);
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kBroadcast, send, recv, count, type, root));
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kAllGather, send, recv, count, type));
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kSend, send, nullptr, count, type, peer));
}
ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue({__func__, comm, stream}, make(Kind::kRecv, nullptr, recv, count, type, peer));
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  const std::size_t bytes = size_of(type);
  if (op == nullptr || scalar == nullptr || bytes == 0 || residence != ncclScalarHostImmediate) {
    return refuse(__func__, ncclInvalidArgument,
                  "no place, no scalar of the host, or no type for it");
  }
  Reduction made;
  made.scaled = true;
  made.factor_type = type;
  std::memcpy(made.factor.data(), scalar, bytes);
  const int number = next_operator();
  me->reductions[number] = made;
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  if (me->reductions.erase(op) == 1) return ncclSuccess;
  return refuse(__func__, ncclInvalidArgument, "the operator is none of this communicator");
}

}  // extern "C"
