#include "tessera/distributed/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/distributed/nccl/nccl_check.h"
#include "tessera/tensor/cuda/device_guard.h"

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
      cudaDeviceSynchronize();  // after an abort: kernels that copy to and from the memory may run
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

}  // namespace tessera::distributed
