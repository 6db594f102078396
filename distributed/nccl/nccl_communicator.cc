#include "tessera/distributed/nccl/nccl_communicator.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/half.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFarewell{2000};
constexpr std::chrono::microseconds kLook{200};

}  // namespace

void check_nccl(int code, const char* what, ncclComm* communicator) {
  const NcclOutcome outcome = nccl_meaning(code).outcome;
  if (outcome == NcclOutcome::kDone || outcome == NcclOutcome::kPending) return;
  const char* last = ncclGetLastError(communicator);
  throw NcclFailure(outcome,
                    nccl_message(code, what, ncclGetErrorString(static_cast<ncclResult_t>(code)),
                                 last == nullptr ? "" : last));
}

int nccl_library_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

std::string make_nccl_id() {
  ncclUniqueId id{};
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
  return {id.internal, sizeof(id.internal)};
}

// Pieces of NCCL's allocator. They are unregistered before they are freed.
struct NcclCommunicator::Memory {
  struct Piece {
    void* data = nullptr;
    void* registration = nullptr;
    ncclWindow_t window = nullptr;
  };
  std::deque<Piece> pieces;  // NCCL may write a handle later, so they stay where they are

  // Of a communicator that lives; an abort has ended registrations.
  void unregister(ncclComm* communicator) {
    for (Piece& piece : pieces) {
      if (piece.window != nullptr) ncclCommWindowDeregister(communicator, piece.window);
      if (piece.registration != nullptr) ncclCommDeregister(communicator, piece.registration);
    }
  }
  ~Memory() {
    for (Piece& piece : pieces) ncclMemFree(piece.data);
  }
};

NcclCommunicator::NcclCommunicator(const Options& options)
    : options_(options), memory_(std::make_unique<Memory>()) {
  const cuda::DeviceGuard guard(options_.device);
  ncclUniqueId id{};
  std::copy_n(options_.id.data(), std::min(options_.id.size(), sizeof(id.internal)), id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = options_.name.c_str();
  try {
    check_nccl(ncclCommInitRankConfig(&handle_, options_.size, id, options_.rank, &config),
               "ncclCommInitRankConfig", nullptr);
  } catch (...) {
    if (handle_ != nullptr) ncclCommAbort(handle_);  // no destructor runs
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  try {
    const cuda::DeviceGuard guard(options_.device);
    const std::lock_guard lock(mutex_);
    if (handle_ != nullptr) {
      finish();
    } else {
      // After an abort: kernels that copy to and from the memory may run. Untimed: NCCL's kernels
      // have been aborted, and no other kernel waits for a peer.
      cudaDeviceSynchronize();
    }
    memory_.reset();
  } catch (...) {
    // The driver is gone, and with it what was to be ended.
  }
}

void NcclCommunicator::finish() noexcept {
  memory_->unregister(handle_);
  const auto deadline = Clock::now() + kFarewell;
  ncclResult_t state = ncclCommFinalize(handle_);
  while (state == ncclInProgress && Clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
    if (ncclCommGetAsyncError(handle_, &state) != ncclSuccess) state = ncclInternalError;
  }
  if (state == ncclSuccess) {
    ncclCommDestroy(handle_);
  } else {
    ncclCommAbort(handle_);
  }
  handle_ = nullptr;
}

ncclComm* NcclCommunicator::handle() const {
  if (handle_ == nullptr) throw NcclAborted();
  return handle_;
}

void NcclCommunicator::check(int code, const char* what) const { check_nccl(code, what, handle_); }

bool NcclCommunicator::is_ready() {
  const std::lock_guard lock(mutex_);
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(handle(), &state), "ncclCommGetAsyncError");
  check(state, "what was issued");
  return state == ncclSuccess;
}

void NcclCommunicator::abort_all(
    std::span<const std::shared_ptr<NcclCommunicator>> communicators) noexcept {
  // Without their locks, under which others ask and learn that it was aborted: it may take long.
  std::vector<ncclComm*> handles;
  for (const auto& each : communicators) {
    const std::lock_guard lock(each->mutex_);
    handles.push_back(std::exchange(each->handle_, nullptr));
  }
  ncclGroupStart();
  for (ncclComm* handle : handles) {
    if (handle != nullptr) ncclCommAbort(handle);
  }
  ncclGroupEnd();
}

std::byte* NcclCommunicator::allocate(std::size_t bytes, NcclRegistration registration) {
  const cuda::DeviceGuard guard(options_.device);
  const std::lock_guard lock(mutex_);
  Memory::Piece piece;
  check(ncclMemAlloc(&piece.data, bytes), "ncclMemAlloc");
  Memory::Piece& kept = memory_->pieces.emplace_back(piece);
  if (registration == NcclRegistration::kLocal) {
    check(ncclCommRegister(handle(), kept.data, bytes, &kept.registration), "ncclCommRegister");
  } else if (registration == NcclRegistration::kSymmetric) {
    check(ncclCommWindowRegister(handle(), kept.data, bytes, &kept.window, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
  }
  return static_cast<std::byte*>(kept.data);
}

void issue_together(std::span<NcclCommunicator* const> communicators,
                    const std::function<void()>& calls) {
  if (communicators.empty()) return;
  const cuda::DeviceGuard guard(communicators.front()->device());
  std::vector<NcclCommunicator*> all(communicators.begin(), communicators.end());
  std::sort(all.begin(), all.end());
  std::vector<std::unique_lock<std::mutex>> locks;
  for (NcclCommunicator* each : all) locks.emplace_back(each->mutex_);
  for (NcclCommunicator* each : all) each->handle();  // throws where it was aborted
  all.front()->check(ncclGroupStart(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    ncclGroupEnd();  // or this thread's next group would be inside of it
    throw;
  }
  all.front()->check(ncclGroupEnd(), "ncclGroupEnd");
}

namespace {

// What a communicator issues on streams.

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
