// What a communicator issues on streams.

#include <nccl.h>

#include "tessera/distributed/nccl/nccl_communicator.h"
#include "tessera/tensor/half.h"

namespace tessera::distributed {
namespace {

// Bools are bytes of 0 and 1: see nccl_reduction().
ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI64:
      return ncclInt64;
    case DType::kI32:
      return ncclInt32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kU8:
    case DType::kBool:
      return ncclUint8;
  }
  return ncclUint8;
}

std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

// kPremulSum and kInRankOrder have none of their own.
ncclRedOp_t built_in(NcclReduction kind) {
  switch (kind) {
    case NcclReduction::kProduct:
      return ncclProd;
    case NcclReduction::kMax:
      return ncclMax;
    case NcclReduction::kMin:
      return ncclMin;
    case NcclReduction::kAverage:
      return ncclAvg;
    default:
      return ncclSum;
  }
}

// The factor as NCCL reads it: one element.
union Scalar {
  explicit Scalar(const NcclCommunicator::Reduction& reduction) : f64(reduction.factor) {
    if (reduction.dtype == DType::kF32) f32 = static_cast<float>(reduction.factor);
    if (reduction.dtype == DType::kBF16) bf16 = BFloat16(static_cast<float>(reduction.factor));
    if (reduction.dtype == DType::kF16) f16 = Float16(static_cast<float>(reduction.factor));
  }
  double f64;
  float f32;
  BFloat16 bf16;
  Float16 f16;
};

}  // namespace

// The operation of a reduction, until the end of the scope.
struct NcclCommunicator::WithReduction {
  WithReduction(NcclCommunicator& owner, const Reduction& reduction)
      : communicator(owner), op(built_in(reduction.kind)), type(type_of(reduction.dtype)) {
    if (reduction.kind != NcclReduction::kPremulSum) return;
    Scalar scalar(reduction);
    owner.check(
        ncclRedOpCreatePreMulSum(&op, &scalar, type, ncclScalarHostImmediate, owner.handle()),
        "ncclRedOpCreatePreMulSum");
    made = true;
  }
  ~WithReduction() {
    if (made) ncclRedOpDestroy(op, communicator.handle_);
  }
  WithReduction(const WithReduction&) = delete;
  WithReduction& operator=(const WithReduction&) = delete;

  NcclCommunicator& communicator;
  ncclRedOp_t op;
  ncclDataType_t type;
  bool made = false;
};

void NcclCommunicator::all_gather(const void* part, void* whole, std::int64_t count,
                                  CUstream_st* stream, DType dtype) {
  check(ncclAllGather(part, whole, size_of(count), type_of(dtype), handle(), stream),
        "ncclAllGather");
}

void NcclCommunicator::broadcast(void* data, std::int64_t count, int root, CUstream_st* stream,
                                 DType dtype) {
  check(ncclBroadcast(data, data, size_of(count), type_of(dtype), root, handle(), stream),
        "ncclBroadcast");
}

void NcclCommunicator::reduce_scatter(const void* whole, void* part, std::int64_t count,
                                      CUstream_st* stream, const Reduction& reduction) {
  const WithReduction by(*this, reduction);
  check(ncclReduceScatter(whole, part, size_of(count), by.type, by.op, handle(), stream),
        "ncclReduceScatter");
}

void NcclCommunicator::all_reduce(void* data, std::int64_t count, CUstream_st* stream,
                                  const Reduction& reduction) {
  const WithReduction by(*this, reduction);
  check(ncclAllReduce(data, data, size_of(count), by.type, by.op, handle(), stream),
        "ncclAllReduce");
}

void NcclCommunicator::reduce(void* data, std::int64_t count, int root, CUstream_st* stream,
                              const Reduction& reduction) {
  const WithReduction by(*this, reduction);
  void* received = root == rank() ? data : nullptr;
  check(ncclReduce(data, received, size_of(count), by.type, by.op, root, handle(), stream),
        "ncclReduce");
}

void NcclCommunicator::send(const void* data, std::size_t bytes, int peer, CUstream_st* stream) {
  check(ncclSend(data, bytes, ncclUint8, peer, handle(), stream), "ncclSend");
}

void NcclCommunicator::receive(void* data, std::size_t bytes, int peer, CUstream_st* stream) {
  check(ncclRecv(data, bytes, ncclUint8, peer, handle(), stream), "ncclRecv");
}

}  // namespace tessera::distributed
