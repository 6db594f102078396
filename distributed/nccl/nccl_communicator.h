#pragma once

/// A communicator of NCCL, without NCCL's header: non-blocking, on explicit streams only. Private
/// to this folder and the NCCL process group.
///
/// One thread of the rank issues collectives; another thread may query the state and abort at any
/// time, also while the communicator connects. No call blocks longer than NCCL needs to return "in
/// progress": callers poll, and check deadlines and aborts between polls.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>

#include "tessera/distributed/nccl/nccl_routes.h"
#include "tessera/tensor/dtype.h"

struct CUstream_st;
struct ncclComm;

namespace tessera::distributed {

/// A failure that NCCL reported. The text is complete; callers that know the collective turn it
/// into an Error with the collective's name.
class NcclFailure : public std::runtime_error {
 public:
  NcclFailure(NcclOutcome outcome, const std::string& text)
      : std::runtime_error(text), outcome_(outcome) {}
  NcclOutcome outcome() const { return outcome_; }

 private:
  NcclOutcome outcome_;
};

/// The communicator was aborted, here.
class NcclAborted : public std::runtime_error {
 public:
  NcclAborted() : std::runtime_error("the communicator was aborted") {}
};

/// Nothing for success and for a call that is under way; else throws NcclFailure. `what` is the
/// call that failed, `communicator` may be null.
void check_nccl(int code, const char* what, ncclComm* communicator);

/// Of the library: 22703 is 2.27.3. 0 if it does not tell.
int nccl_library_version();

/// A name under which ranks connect, made by one of them: bytes. Throws NcclFailure.
std::string make_nccl_id();

/// How memory of a ring is known to NCCL.
enum class NcclRegistration : std::uint8_t {
  kNone,
  kLocal,      ///< user buffers: ncclCommRegister
  kSymmetric,  ///< windows that lie alike on all ranks: ncclCommWindowRegister
};

class NcclCommunicator {
 public:
  struct Options {
    std::string name;  ///< for NCCL's own messages
    std::string id;
    int rank = 0;
    int size = 1;
    int device = 0;
  };
  /// Begins to connect. Throws NcclFailure.
  explicit NcclCommunicator(const Options& options);
  /// Gives the other ranks two seconds to end it too, then aborts. What was issued must be done,
  /// and CUDA graphs that captured calls of it gone: it waits for them.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  int device() const { return options_.device; }

  /// False while a call, including connecting, is in progress. Throws NcclFailure for failures that
  /// NCCL reports, including those of work on the GPU, and NcclAborted.
  bool is_ready();

  /// Ends what is under way on the host and on the GPU, of all of them together: one after the
  /// other they could wait for each other. Returns when the CUDA graphs that captured calls of them
  /// have gone. Idempotent, from any thread.
  static void abort_all(std::span<const std::shared_ptr<NcclCommunicator>> communicators) noexcept;

  // Calls, only inside of issue_together(). Counts are elements.
  void all_gather(const void* part, void* whole, std::int64_t count, CUstream_st* stream,
                  DType dtype);
  void broadcast(void* data, std::int64_t count, int root, CUstream_st* stream, DType dtype);
  /// `factor`: of kPremulSum.
  struct Reduction {
    NcclReduction kind = NcclReduction::kSum;
    double factor = 1;
    DType dtype = DType::kF32;
  };
  void reduce_scatter(const void* whole, void* part, std::int64_t count, CUstream_st* stream,
                      const Reduction& reduction);
  void all_reduce(void* data, std::int64_t count, CUstream_st* stream, const Reduction& reduction);
  /// `data` is written at the root only.
  void reduce(void* data, std::int64_t count, int root, CUstream_st* stream,
              const Reduction& reduction);
  void send(const void* data, std::size_t bytes, int peer, CUstream_st* stream);
  void receive(void* data, std::size_t bytes, int peer, CUstream_st* stream);

  /// Memory of NCCL's allocator that is registered with this communicator until its end. All ranks
  /// call it alike; then wait until is_ready(). Throws NcclFailure.
  std::byte* allocate(std::size_t bytes, NcclRegistration registration);

 private:
  friend void issue_together(std::span<NcclCommunicator* const> communicators,
                             const std::function<void()>& calls);
  struct Memory;
  struct WithReduction;

  void check(int code, const char* what) const;  // pending is no failure
  ncclComm* handle() const;                      // throws NcclAborted; lock held
  void finish() noexcept;                        // lock held

  const Options options_;
  std::mutex mutex_;
  ncclComm* handle_ = nullptr;  // null: aborted
  std::unique_ptr<Memory> memory_;
};

/// Runs `calls`, which makes calls of these communicators, as one group of NCCL, and returns when
/// NCCL has them; they are issued when is_ready() of each. Throws NcclFailure, NcclAborted.
void issue_together(std::span<NcclCommunicator* const> communicators,
                    const std::function<void()>& calls);

}  // namespace tessera::distributed
