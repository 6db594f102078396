#include "tessera/tensor/cuda/queue.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/device_pool.h"
#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/pinned_pool.h"
#include "tessera/tensor/cuda/queue_failure.h"
#include "tessera/tensor/cuda/recorded_mark.h"
#include "tessera/tensor/cuda/sleep.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/work_queue.h"

namespace tessera::cuda {
namespace {

struct HostTask {
  const char* name;
  std::string stream;
  std::function<void()> work;
  std::shared_ptr<RankContext> context;
  std::shared_ptr<QueueFailure> failure;
};

// Runs on a driver thread, which must not see exceptions.
void CUDART_CB run_host_task(void* data) {
  const std::unique_ptr<HostTask> task(static_cast<HostTask*>(data));
  detail::thread_state().is_stream_worker = true;
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

// For a destructor, which cannot throw: if the driver refuses, the object is kept for good.
void keep_until_done(cudaStream_t stream, std::shared_ptr<QueueFailure> failure) noexcept {
  auto* kept = new (std::nothrow) std::shared_ptr<QueueFailure>(std::move(failure));
  if (kept == nullptr) return;
  const auto drop = [](void* data) { delete static_cast<std::shared_ptr<QueueFailure>*>(data); };
  if (cudaLaunchHostFunc(stream, drop, kept) != cudaSuccess) cudaGetLastError();
}

class GpuQueue final : public Queue,
                       public CapturedQueue,
                       public std::enable_shared_from_this<GpuQueue> {
 public:
  GpuQueue(int device, std::string name)
      : device_(device),
        name_(std::move(name)),
        pool_(DevicePool::of(device)),
        events_(EventStore::of(device)) {
    const DeviceGuard guard(device_);
    // Non-blocking: no implicit order with the legacy default stream.
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream.create",
               "cudaStreamCreate");
    pool_.add(stream_);
    set_fault_slot(stream_, &failure_->fault_slot());
  }
  // The driver finishes the work that was issued; until then kernels may report faults.
  ~GpuQueue() override {
    set_fault_slot(stream_, nullptr);
    keep_until_done(stream_, failure_);
    pool_.remove(stream_);
    cudaStreamDestroy(stream_);
  }

  // The caller is about to issue work.
  CUstream_st* handle() const override {
    capture();
    return stream_;
  }

  void run(const char* name, std::function<void()> work) override {
    TESSERA_CHECK_AS(StateError, Capture::current() == nullptr, "stream.enqueue",
                     "closure \"{}\" of stream \"{}\" cannot be part of a CUDA graph; enqueue it "
                     "outside of the capture",
                     name, name_);
    const DeviceGuard guard(device_);
    auto task = std::make_unique<HostTask>(
        HostTask{name, name_, std::move(work), current_rank_context(), failure_});
    check_cuda(cudaLaunchHostFunc(stream_, &run_host_task, task.get()), "stream.enqueue",
               "cudaLaunchHostFunc");
    task.release();  // the driver thread deletes it
  }

  std::shared_ptr<const Mark> record() override {
    const DeviceGuard guard(device_);
    Capture* into = capture();
    return std::make_shared<RecordedMark>(events_, stream_, failure_,
                                          into == nullptr ? nullptr : into->replays());
  }

  void wait(const Mark& mark) override {
    const DeviceGuard guard(device_);
    static_cast<const RecordedMark&>(mark).hold_up(handle());
  }

  void fail(std::exception_ptr error) noexcept override { failure_->note(std::move(error)); }

  void add_witness(std::function<bool()> witness) override {
    failure_->add_witness(std::move(witness));
  }

  std::shared_ptr<Replays> captured_into() const override {
    const Capture* into = capture();
    return into == nullptr ? nullptr : into->replays();
  }

  void follow(const Replays& replays) override { cuda::follow(failure_, replays.failure()); }

  void synchronize() override {
    check_not_capturing("stream.synchronize");
    const DeviceGuard guard(device_);
    check_cuda(cudaStreamSynchronize(stream_), "stream.synchronize", "cudaStreamSynchronize");
    failure_->look_for_fault();
    failure_->rethrow_once();
  }

  void sleep(double milliseconds) override {
    const DeviceGuard guard(device_);
    launch_sleep(handle(), static_cast<std::uint64_t>(milliseconds * 1e6));
  }

  void* take(std::size_t bytes) override {
    const DeviceGuard guard(device_);
    Capture* into = capture();
    void* data = into == nullptr ? pool_.take(bytes, stream_)
                                 : into->memory()->take(shared_from_this(), bytes, pool_);
    if (data == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    if (into != nullptr) of_graphs_[data] = into->memory();
    if (out_++ == 0) self_ = shared_from_this();
    return data;
  }

  void give_back(void* data) noexcept override {
    std::shared_ptr<GpuQueue> last;  // destroyed after the lock is released
    std::shared_ptr<GraphMemory> memory;
    {
      const std::lock_guard lock(mutex_);
      if (--out_ == 0) last.swap(self_);
      if (const auto found = of_graphs_.find(data); found != of_graphs_.end()) {
        memory = std::move(found->second);
        of_graphs_.erase(found);
      }
    }
    if (memory != nullptr) return memory->give_back(this, data);
    release(data, nullptr);
  }

  bool may_reuse(void* data) const override {
    const Capture* now = Capture::current();
    const std::lock_guard lock(mutex_);
    const auto found = of_graphs_.find(data);
    return found == of_graphs_.end() ? now == nullptr
                                     : now != nullptr && found->second == now->memory();
  }

  // From here on the graph owns memory that the capture may read.
  void release(void* data, const Mark* behind) noexcept override {
    std::shared_ptr<GraphMemory> reader;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    const Capture* capture = Capture::current();
    reader = capture == nullptr ? captured_into_ : capture->memory();
    if (reader != nullptr) return reader->keep(shared_from_this(), data);
    try {
      const DeviceGuard guard(device_);
      if (behind != nullptr) static_cast<const RecordedMark&>(*behind).hold_up(stream_);
    } catch (const std::exception&) {
      // The GPU accepts no more work; the next call reports it.
    }
    cudaFreeAsync(data, stream_);  // the next call reports an error: a destructor cannot throw
  }

  void leave_capture() noexcept override {
    const std::lock_guard lock(mutex_);
    captured_into_ = nullptr;
    joined_ = nullptr;
    set_fault_slot(stream_, &failure_->fault_slot());
  }

  void fill_bytes(void* to, unsigned char byte, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceGuard guard(device_);
    check_cuda(cudaMemsetAsync(to, byte, bytes, handle()), "fill_bytes", "cudaMemsetAsync");
  }

  void copy_from_host(void* to, const void* from, std::size_t bytes) override {
    TESSERA_CHECK_AS(StateError, Capture::current() == nullptr, "copy_from_host",
                     "{} bytes of the host cannot be copied while a CUDA graph is captured: each "
                     "replay would find those of the capture; bring them to the GPU before",
                     bytes);
    const DeviceGuard guard(device_);
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t length = std::min(bytes - done, kLargestPinned);
      PinnedPool::Piece piece = PinnedPool::instance().take(length);
      std::memcpy(piece.data(), static_cast<const std::byte*>(from) + done, length);
      check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, piece.data(), length,
                                 cudaMemcpyHostToDevice, stream_),
                 "copy_from_host", "cudaMemcpyAsync");
      try {
        piece.busy_until(record());
      } catch (...) {
        cudaStreamSynchronize(stream_);  // the piece is free from here on
        throw;
      }
      done += length;
    }
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    check_not_capturing("copy_to_host");
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
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle()), "copy",
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
  // The capture that records the calling thread's work; null: the work runs.
  Capture* capture() const {
    Capture* current = Capture::current();
    if (current != nullptr && joined_ != current) [[unlikely]]
      join(*current);
    return current;
  }
  // Set before the stream is captured: blocks may be returned meanwhile, from any thread.
  void join(Capture& capture) const {
    const auto self = std::const_pointer_cast<GpuQueue>(shared_from_this());
    {
      const std::lock_guard lock(mutex_);
      captured_into_ = capture.memory();
      joined_ = &capture;
      set_fault_slot(stream_, &capture.replays()->fault_slot());
    }
    try {
      capture.join({.queue = self, .stream = stream_, .device = device_}, pool_);
    } catch (...) {
      self->leave_capture();
      throw;
    }
  }

  const int device_;
  const std::string name_;
  DevicePool& pool_;
  EventStore& events_;
  cudaStream_t stream_ = nullptr;
  const std::shared_ptr<QueueFailure> failure_ = std::make_shared<QueueFailure>();
  mutable std::mutex mutex_;
  std::size_t out_ = 0;                                      // blocks allocated and not returned
  std::shared_ptr<GpuQueue> self_;                           // set while out_ > 0
  std::map<void*, std::shared_ptr<GraphMemory>> of_graphs_;  // blocks of graphs
  mutable std::shared_ptr<GraphMemory> captured_into_;       // while the stream is captured
  mutable Capture* joined_ = nullptr;                        // the capturing thread's own
};

}  // namespace

std::shared_ptr<Queue> start_queue(Device device, const std::string& name) {
  TESSERA_CHECK_AS(StateError, Capture::current() == nullptr, "stream.create",
                   "stream \"{}\" cannot be made while a CUDA graph is captured; run what is "
                   "captured once before",
                   name);
  const int count = cuda_device_count();
  TESSERA_CHECK_AS(
      DeviceError, device.index >= 0 && device.index < count, "stream.create",
      "{} cannot run \"{}\": this process sees {} GPU{}; use the cpu device, or look at "
      "nvidia-smi and CUDA_VISIBLE_DEVICES",
      device.str(), name, count, count == 1 ? "" : "s");
  return std::make_shared<GpuQueue>(device.index, name);
}

}  // namespace tessera::cuda
