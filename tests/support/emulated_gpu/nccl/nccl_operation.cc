#include "tessera/tests/support/emulated_gpu/nccl/nccl_operation.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/tensor/half.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::nccl {
namespace {

template <class T>
T factor_of(const Reduction& reduction) {
  T factor;
  std::memcpy(&factor, reduction.factor.data(), sizeof factor);
  return factor;
}

// Numbers of 16 bits are computed with in f32.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T>
T fold(ncclRedOp_t op, T left, T right) {
  const Wide<T> a = left, b = right;
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      if constexpr (std::is_integral_v<T>) return a < b ? b : a;
      return static_cast<T>(std::fmax(a, b));
    case ncclMin:
      if constexpr (std::is_integral_v<T>) return b < a ? b : a;
      return static_cast<T>(std::fmin(a, b));
    default:
      return static_cast<T>(a + b);
  }
}

template <class T>
T scaled(T value, T factor) {
  return static_cast<T>(Wide<T>(value) * Wide<T>(factor));
}

// Elements [first, first + count) of all ranks' buffers.
template <class T>
std::vector<char> reduce_as(const std::vector<const Operation*>& by_rank, std::size_t first,
                            std::size_t count) {
  std::vector<char> bytes(count * sizeof(T));
  auto* result = reinterpret_cast<T*>(bytes.data());
  const double ranks = static_cast<double>(by_rank.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Operation& one = *by_rank[rank];
    const T* from = static_cast<const T*>(one.send) + first;
    const bool average = one.reduction.op == ncclAvg && !std::is_integral_v<T>;
    const bool scales = one.reduction.scaled || average;
    const T factor = average  ? static_cast<T>(1 / ranks)
                     : scales ? factor_of<T>(one.reduction)
                              : T{};
    for (std::size_t i = 0; i < count; ++i) {
      const T value = scales ? scaled(from[i], factor) : from[i];
      result[i] = rank == 0 ? value : fold(one.reduction.op, result[i], value);
    }
  }
  if constexpr (std::is_integral_v<T>) {
    if (by_rank[0]->reduction.op == ncclAvg) {
      for (std::size_t i = 0; i < count; ++i) result[i] /= static_cast<T>(by_rank.size());
    }
  }
  return bytes;
}

std::vector<char> reduce(const std::vector<const Operation*>& by_rank, std::size_t first,
                         std::size_t count) {
  switch (by_rank[0]->type) {
    case ncclUint8:
      return reduce_as<std::uint8_t>(by_rank, first, count);
    case ncclInt32:
      return reduce_as<std::int32_t>(by_rank, first, count);
    case ncclInt64:
      return reduce_as<std::int64_t>(by_rank, first, count);
    case ncclFloat16:
      return reduce_as<Float16>(by_rank, first, count);
    case ncclBfloat16:
      return reduce_as<BFloat16>(by_rank, first, count);
    case ncclFloat64:
      return reduce_as<double>(by_rank, first, count);
    default:
      return reduce_as<float>(by_rank, first, count);
  }
}

void copy(void* to, const std::vector<char>& from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

// What each rank receives, before anything is written: buffers may be one.
std::vector<std::vector<char>> received(const std::vector<const Operation*>& by_rank) {
  const Operation& first = *by_rank[0];
  const int ranks = static_cast<int>(by_rank.size());
  const std::size_t bytes = first.count * size_of(first.type);
  std::vector<std::vector<char>> results(ranks);
  const auto append = [&](std::vector<char>& to, int from) {
    const char* at = static_cast<const char*>(by_rank[from]->send);
    to.insert(to.end(), at, at + bytes);
  };
  if (first.kind == Kind::kAllReduce || first.kind == Kind::kAllGather) {
    if (first.kind == Kind::kAllReduce) {
      results[0] = reduce(by_rank, 0, first.count);
    } else {
      for (int from = 0; from < ranks; ++from) append(results[0], from);
    }
    for (int rank = 1; rank < ranks; ++rank) results[rank] = results[0];
    return results;
  }
  if (first.kind == Kind::kReduce) results[first.peer] = reduce(by_rank, 0, first.count);
  for (int rank = 0; rank < ranks; ++rank) {
    if (first.kind == Kind::kReduceScatter) {
      results[rank] = reduce(by_rank, rank * first.count, first.count);
    }
    if (first.kind == Kind::kBroadcast) append(results[rank], first.peer);
  }
  return results;
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"AllReduce", "Reduce", "ReduceScatter", "Broadcast",
                                    "AllGather", "Send",   "Recv"};
  return kNames[static_cast<int>(kind)];
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

Extents extents_of(const Operation& o, int rank, int ranks) {
  const std::size_t one = o.count * size_of(o.type), all = one * ranks;
  const bool root = rank == o.peer;
  switch (o.kind) {
    case Kind::kAllReduce:
      return {one, one};
    case Kind::kReduce:
      return {one, root ? one : 0};
    case Kind::kReduceScatter:
      return {all, one};
    case Kind::kBroadcast:
      return {root ? one : 0, one};
    case Kind::kAllGather:
      return {one, all};
    case Kind::kSend:
      return {one, 0};
    case Kind::kRecv:
      return {0, one};
  }
  return {};
}

std::string disagreement(const Operation& a, const Operation& b) {
  const auto differ = [](const std::string& what) { return what + " differ between ranks"; };
  if (a.kind != b.kind && !is_point_to_point(a.kind)) {
    return differ(fmt::format("the operations {} and {}", name_of(a.kind), name_of(b.kind)));
  }
  if (a.count != b.count) {
    return differ(fmt::format("counts {} and {} of {}", a.count, b.count, name_of(a.kind)));
  }
  if (a.type != b.type) {
    return differ(fmt::format("types {} and {} of {}", static_cast<int>(a.type),
                              static_cast<int>(b.type), name_of(a.kind)));
  }
  if (is_point_to_point(a.kind)) return {};
  if (a.peer != b.peer) return differ(fmt::format("roots {} and {}", a.peer, b.peer));
  if (is_reduction(a.kind) &&
      (a.reduction.op != b.reduction.op || a.reduction.scaled != b.reduction.scaled)) {
    return differ("reduction operators");
  }
  if (a.send_window != b.send_window || a.recv_window != b.recv_window) {
    return differ("places of buffers in symmetric windows");
  }
  return {};
}

void complete(const std::vector<const Operation*>& by_rank) {
  const auto results = received(by_rank);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    copy(by_rank[rank]->recv, results[rank]);
}

void spoil(const Operation& operation, int rank, int ranks) {
  const std::size_t bytes = extents_of(operation, rank, ranks).recv;
  if (bytes != 0 && is_device_memory(operation.recv, bytes)) {
    std::memset(operation.recv, 0xff, bytes);
  }
}

}  // namespace tessera::emulated::nccl
