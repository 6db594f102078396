// Streams: their threads, and CUDA's functions for them.

#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/block_runner.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"

namespace tessera::emulated {
namespace {

std::uint64_t next_stream_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Clock::duration patience() {
  static const Clock::duration time = [] {
    const char* text = std::getenv("TESSERA_EMULATED_PATIENCE_US");
    return std::chrono::microseconds(text == nullptr ? 2000 : std::atoi(text));
  }();
  return time;
}

// All state of the runtime is never destroyed: streams may work while the process ends.
struct Streams {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Stream>> all;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

std::mutex& null_stream_mutex(int device) {
  static auto* mutexes = new std::map<int, std::mutex>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return (*mutexes)[device];
}

void run_on_device(int device, const std::function<void()>& work) {
  try {
    work();
  } catch (const KernelHang& error) {
    fail_device(device, cudaErrorLaunchTimeout, error.what());
  } catch (const std::exception& error) {
    fail_device(device, cudaErrorLaunchFailure, error.what());
  }
}

// The null stream runs behind the work of streams that were not made with cudaStreamNonBlocking.
cudaError_t run_on_null_stream(const std::function<void()>& work, Runs runs) {
  const int device = current_device();
  std::vector<std::shared_ptr<Stream>> blocking = streams_of(device);
  std::erase_if(blocking,
                [](const auto& each) { return (each->flags & cudaStreamNonBlocking) != 0; });
  const cudaError_t error = refuse_while_capturing(blocking, cudaErrorStreamCaptureImplicit);
  if (error != cudaSuccess) return error;
  for (const auto& stream : blocking) stream->wait_for(stream->last_ticket());
  const std::lock_guard lock(null_stream_mutex(device));
  if (runs == Runs::kAlways || failure_of(device) == cudaSuccess) run_on_device(device, work);
  return failure_of(device);
}

}  // namespace

Stream::Stream(int device, unsigned flags) : device(device), flags(flags), id(next_stream_id()) {}

std::uint64_t Stream::push(std::function<void()> work, Runs runs) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({std::move(work), runs, Clock::now()});
  ++issued_;
  if (!started_) {
    started_ = true;
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
  }
  changed_.notify_all();
  return issued_;
}

std::uint64_t Stream::last_ticket() const {
  const std::lock_guard lock(mutex_);
  return issued_;
}

void Stream::demand(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (demanded_ >= ticket) return;
  demanded_ = ticket;
  changed_.notify_all();
}

bool Stream::is_done(std::uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return finished_ >= ticket;
}

void Stream::wait_for(std::uint64_t ticket) {
  demand(ticket);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= ticket; });
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Order Stream::order() const {
  const std::lock_guard lock(mutex_);
  Order order = order_;
  order.add(id, issued_);
  return order;
}

void Stream::follow(const Order& order) {
  const std::lock_guard lock(mutex_);
  order_.add(order);
}

void Stream::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !tasks_.empty() || closed_; });
    if (tasks_.empty()) return;
    changed_.wait_until(lock, tasks_.front().issued_at + patience(),
                        [&] { return demanded_ > finished_; });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    run(task);
    task = {};  // what it holds goes before others hear that it is done
    lock.lock();
    ++finished_;
    changed_.notify_all();
  }
}

void Stream::run(const Task& task) const {
  if (task.runs == Runs::kAlways || failure_of(device) == cudaSuccess)
    run_on_device(device, task.work);
}

Handle resolve(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return {};
  const std::lock_guard lock(streams().mutex);
  const auto found = streams().all.find(handle);
  if (found == streams().all.end()) return {.stream = nullptr, .valid = false};
  return {.stream = found->second};
}

std::vector<std::shared_ptr<Stream>> streams_of(int device) {
  std::vector<std::shared_ptr<Stream>> out;
  const std::lock_guard lock(streams().mutex);
  for (const auto& [handle, stream] : streams().all)
    if (stream->device == device) out.push_back(stream);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return out;
}

cudaError_t submit(const Handle& to, std::function<void()> work, Runs runs) {
  if (!to.valid) return cudaErrorInvalidResourceHandle;
  if (to.stream == nullptr) return run_on_null_stream(work, runs);
  if (captures_under_way() > 0) {
    const CaptureAnswer answer = capture_operation(*to.stream, work);
    if (answer.captured) return answer.error;
  }
  to.stream->push(std::move(work), runs);
  return cudaSuccess;
}

cudaError_t issue_work(cudaStream_t stream, std::function<void()> work) {
  return call([&] { return submit(resolve(stream), std::move(work)); });
}

cudaError_t synchronize_device(int device) {
  const std::vector<std::shared_ptr<Stream>> all = streams_of(device);
  const cudaError_t error = refuse_while_capturing(all, cudaErrorStreamCaptureUnsupported);
  if (error != cudaSuccess) return error;
  for (const auto& stream : all) stream->demand(stream->last_ticket());
  for (const auto& stream : all) {
    const Order order = stream->order();
    stream->wait_for(stream->last_ticket());
    host_has_seen(order);
  }
  return failure_of(device);
}

}  // namespace tessera::emulated

using namespace tessera::emulated;

namespace {

// Runs `body` with the stream; the null stream is null.
template <class Body>
cudaError_t with_stream(cudaStream_t handle, Body body) {
  return call([&] {
    const Handle resolved = resolve(handle);
    return resolved.valid ? body(resolved.stream) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return call([&] {
    if (out == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0)
      return cudaErrorInvalidValue;
    auto stream = std::make_shared<CUstream_st>(current_device(), flags);
    *out = stream.get();
    const std::lock_guard lock(streams().mutex);
    streams().all[stream.get()] = std::move(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return with_stream(handle, [&](const std::shared_ptr<Stream>& stream) {
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    abandon_capture(*stream);
    stream->close();
    const std::lock_guard lock(streams().mutex);
    streams().all.erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return with_stream(handle, [](const std::shared_ptr<Stream>& stream) {
    if (stream == nullptr) return run_on_null_stream([] {}, Runs::kUnlessFailed);
    const cudaError_t error = refuse_while_capturing({stream}, cudaErrorStreamCaptureUnsupported);
    if (error != cudaSuccess) return error;
    const Order order = stream->order();
    stream->wait_for(stream->last_ticket());
    host_has_seen(order);
    return failure_of(stream->device);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream(handle, [](const std::shared_ptr<Stream>& stream) {
    if (stream == nullptr) return cudaSuccess;
    const cudaError_t error = refuse_while_capturing({stream}, cudaErrorStreamCaptureUnsupported);
    if (error != cudaSuccess) return error;
    const std::uint64_t ticket = stream->last_ticket();
    stream->demand(ticket);
    return stream->is_done(ticket) ? failure_of(stream->device) : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return with_stream(handle, [&](const std::shared_ptr<Stream>& stream) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = stream == nullptr ? current_device() : stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream(handle, [&](const std::shared_ptr<Stream>& stream) {
    if (function == nullptr) return cudaErrorInvalidValue;
    return submit({.stream = stream},
                  [function, data, device = stream ? stream->device : current_device()] {
                    // One after another, as the driver may do it: closures that wait for each other
                    // hang.
                    static std::mutex mutexes[64];
                    const std::lock_guard lock(mutexes[device]);
                    const HostFunctionScope scope;
                    function(data);
                  });
  });
}

}  // extern "C"
