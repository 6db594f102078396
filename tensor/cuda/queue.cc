#include "tessera/tensor/cuda/queue.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/device_pool.h"
#include "tessera/tensor/cuda/pinned_pool.h"
#include "tessera/tensor/cuda/sleep.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/work_queue.h"

namespace tessera::cuda {
namespace {

// The CUDA events of one GPU, which are costly to make, for use again.
class EventStore {
 public:
  static EventStore& of(int device) {
    static auto* mutex = new std::mutex;
    static auto* stores = new std::map<int, EventStore>;
    const std::lock_guard lock(*mutex);
    return (*stores)[device];
  }
  // The device is the current one.
  cudaEvent_t take() {
    {
      const std::lock_guard lock(mutex_);
      if (!kept_.empty()) {
        cudaEvent_t event = kept_.back();
        kept_.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event.record",
               "cudaEventCreate");
    return event;
  }
  void give_back(cudaEvent_t event) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      kept_.push_back(event);
    } catch (...) {
      cudaEventDestroy(event);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> kept_;
};

// What went wrong in a closure of a stream. Outlives the stream while a closure may run.
class Failure {
 public:
  bool any() const {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }
  void note(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  void rethrow() const {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = error_;
    }
    if (error != nullptr) std::rethrow_exception(std::move(error));
  }
  void rethrow_once() {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = std::exchange(error_, nullptr);
    }
    if (error != nullptr) std::rethrow_exception(std::move(error));
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

struct HostTask {
  const char* name;
  std::string stream;
  std::function<void()> work;
  std::shared_ptr<RankContext> context;
  std::shared_ptr<Failure> failure;
};

// On a thread of the driver, which nothing may be thrown into.
void CUDART_CB run_host_task(void* data) {
  const std::unique_ptr<HostTask> task(static_cast<HostTask*>(data));
  detail::mark_stream_worker();
  const RankScope scope(task->context);
  if (task->failure->any()) return;
  try {
    task->work();
  } catch (...) {
    const std::exception_ptr error = task_failure(task->name, task->stream);
    task->failure->note(error);
    task->context->report_failure(error);
  }
}

class RecordedMark final : public Mark {
 public:
  RecordedMark(EventStore& events, cudaStream_t stream, std::shared_ptr<const Failure> failure)
      : events_(events), event_(events.take()), failure_(std::move(failure)) {
    const cudaError_t error = cudaEventRecord(event_, stream);
    if (error != cudaSuccess) events_.give_back(event_);
    check_cuda(error, "event.record", "cudaEventRecord");
  }
  // Waits that were issued keep the mark, whatever the event is recorded for next.
  ~RecordedMark() override { events_.give_back(event_); }

  cudaEvent_t event() const { return event_; }

  bool reached() const override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // or the next launch would report it
      return false;
    }
    check_cuda(error, "event.is_ready", "cudaEventQuery");
    return true;
  }
  void await() const override {
    check_cuda(cudaEventSynchronize(event_), "event.synchronize", "cudaEventSynchronize");
  }
  void synchronize() const override {
    await();
    failure_->rethrow();
  }

 private:
  EventStore& events_;
  cudaEvent_t event_;
  std::shared_ptr<const Failure> failure_;
};

class GpuQueue final : public Queue, public std::enable_shared_from_this<GpuQueue> {
 public:
  GpuQueue(int device, std::string name)
      : device_(device),
        name_(std::move(name)),
        pool_(DevicePool::of(device)),
        events_(EventStore::of(device)) {
    const DeviceGuard guard(device_);
    // Non-blocking: the legacy default stream orders nothing here.
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream.create",
               "cudaStreamCreate");
  }
  // The driver lets what was issued run to its end.
  ~GpuQueue() override { cudaStreamDestroy(stream_); }

  CUstream_st* handle() const override { return stream_; }

  void run(const char* name, std::function<void()> work) override {
    const DeviceGuard guard(device_);
    auto task = std::make_unique<HostTask>(
        HostTask{name, name_, std::move(work), current_rank_context(), failure_});
    check_cuda(cudaLaunchHostFunc(stream_, &run_host_task, task.get()), "stream.enqueue",
               "cudaLaunchHostFunc");
    task.release();  // the driver's thread ends it
  }

  std::shared_ptr<const Mark> record() override {
    const DeviceGuard guard(device_);
    return std::make_shared<RecordedMark>(events_, stream_, failure_);
  }

  void wait(const Mark& mark) override {
    const DeviceGuard guard(device_);
    const cudaEvent_t event = static_cast<const RecordedMark&>(mark).event();
    check_cuda(cudaStreamWaitEvent(stream_, event, 0), "stream.wait", "cudaStreamWaitEvent");
  }

  void synchronize() override {
    const DeviceGuard guard(device_);
    check_cuda(cudaStreamSynchronize(stream_), "stream.synchronize", "cudaStreamSynchronize");
    failure_->rethrow_once();
  }

  void sleep(double milliseconds) override {
    const DeviceGuard guard(device_);
    launch_sleep(stream_, static_cast<std::uint64_t>(milliseconds * 1e6));
    check_launch("stream_sleep");
  }

  void* take(std::size_t bytes) override {
    const DeviceGuard guard(device_);
    void* data = pool_.take(bytes, stream_);
    if (data == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    if (out_++ == 0) self_ = shared_from_this();
    return data;
  }

  void give_back(void* data) noexcept override {
    cudaFreeAsync(data, stream_);    // an error shows at the next call: a destructor cannot throw
    std::shared_ptr<GpuQueue> last;  // goes after the lock
    const std::lock_guard lock(mutex_);
    if (--out_ == 0) last.swap(self_);
  }

  void fill_bytes(void* to, unsigned char byte, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceGuard guard(device_);
    check_cuda(cudaMemsetAsync(to, byte, bytes, stream_), "fill_bytes", "cudaMemsetAsync");
  }

  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    const DeviceGuard guard(device_);
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t length = std::min(bytes - done, kLargestPinned);
      PinnedPool::Piece piece = PinnedPool::instance().take(length);
      std::memcpy(piece.data(), static_cast<const std::byte*>(from) + done, length);
      check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, piece.data(), length,
                                 cudaMemcpyHostToDevice, stream_),
                 "copy_from_host", "cudaMemcpyAsync");
      piece.busy_until(record());
      done += length;
    }
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    const DeviceGuard guard(device_);
    if (bytes > 0) {
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "copy_to_host",
                 "cudaMemcpyAsync");
    }
    synchronize();
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceGuard guard(device_);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy",
               "cudaMemcpyAsync");
  }

  bool reaches(int other) const override {
    if (other == device_) return true;
    int reaches = 0;
    check_cuda(cudaDeviceCanAccessPeer(&reaches, device_, other), "copy",
               "cudaDeviceCanAccessPeer");
    return reaches != 0;
  }

 private:
  const int device_;
  const std::string name_;
  DevicePool& pool_;
  EventStore& events_;
  cudaStream_t stream_ = nullptr;
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::mutex mutex_;
  std::size_t out_ = 0;             // blocks taken and not given back
  std::shared_ptr<GpuQueue> self_;  // while there are any
};

}  // namespace

std::shared_ptr<Queue> start_queue(Device device, const std::string& name) {
  const int count = cuda_device_count();
  TESSERA_CHECK_AS(
      DeviceError, device.index >= 0 && device.index < count, "stream.create",
      "{} cannot run \"{}\": this process sees {} GPU{}; use the cpu device, or look at "
      "nvidia-smi and CUDA_VISIBLE_DEVICES",
      device.str(), name, count, count == 1 ? "" : "s");
  return std::make_shared<GpuQueue>(device.index, name);
}

}  // namespace tessera::cuda
