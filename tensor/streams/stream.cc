#include "tessera/tensor/streams/stream.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream_impl.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

std::uint64_t next_stream_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::uint64_t next_event_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void trace_event(EventAction action, const DeviceEvent& event, std::uint64_t mark,
                 std::uint64_t stream) {
  if (ExecutionTrace* trace = active_trace()) {
    trace->add(EventRecord{action, event.id(), mark, stream, event.name()});
  }
}

// Null unless a timed trace is active.
std::shared_ptr<TracedWork> traced_work(const char* name, std::uint64_t stream,
                                        const std::string& stream_name, WorkThread thread) {
  ExecutionTrace* trace = active_timed_trace();
  return trace == nullptr ? nullptr : trace->add_work(name, stream, stream_name, thread);
}

std::shared_ptr<TracedWork> host_wait() {
  return traced_work("synchronize", 0, "host", WorkThread::kHost);
}

// The GPU part of DeviceStream::wait.
void wait_for_gpu(const std::shared_ptr<const cuda::Mark>& mark, cuda::Queue* gpu, WorkQueue* queue,
                  std::shared_ptr<TracedWork> times) {
  if (gpu != nullptr) return gpu->wait(*mark);
  if (queue != nullptr) {
    return queue->run(
        "event.wait", [mark] { mark->synchronize(); }, std::move(times));
  }
  const WorkTimer timer(times.get());
  mark->synchronize();
}

StreamKind kind_on(Device device, StreamKind asked) {
  return device.is_cuda() ? StreamKind::kQueued : asked;
}

}  // namespace

DeviceStream::Impl::Impl(Device device_in, StreamKind kind_in, std::string name_in)
    : id(next_stream_id()),
      device(device_in),
      kind(kind_on(device_in, kind_in)),
      name(std::move(name_in)) {
  if (device.is_cuda()) gpu = cuda::start_queue(device, name);
  if (!device.is_cpu()) return;
  pool = std::make_shared<StreamPool>();
  if (kind == StreamKind::kQueued) queue = WorkQueue::start(name, pool);
}

DeviceStream::Impl::~Impl() {
  if (queue) {
    queue->finish();  // its thread retires the pool, after the last task
  } else if (pool) {
    pool->retire();
  }
}

DeviceStream DeviceStream::create(Device device, StreamKind kind, std::string name) {
  DeviceStream out;
  out.impl_ = std::make_shared<Impl>(device, kind, std::move(name));
  return out;
}

std::uint64_t DeviceStream::id() const { return impl().id; }
const std::string& DeviceStream::name() const { return impl().name; }
Device DeviceStream::device() const { return impl().device; }
StreamKind DeviceStream::kind() const { return impl().kind; }

const DeviceStream::Impl& DeviceStream::impl() const {
  TESSERA_CHECK_AS(StateError, impl_ != nullptr, "stream",
                   "this handle holds no stream; make one with Stream::create");
  return *impl_;
}

void DeviceStream::enqueue(const char* name, std::function<void()> work) const {
  const Impl& self = impl();
  if (self.queue) {
    self.queue->run(name, std::move(work),
                    traced_work(name, self.id, self.name, WorkThread::kStream));
  } else if (self.device.is_cpu()) {
    const std::shared_ptr<TracedWork> times =
        traced_work(name, self.id, self.name, WorkThread::kHost);
    const WorkTimer timer(times.get());
    work();
  } else if (self.gpu) {
    self.gpu->run(name, std::move(work));
  }
}

void DeviceStream::wait(const DeviceEvent& event) const {
  const Impl& self = impl();
  const auto [mark, gpu_mark, number] = event.impl_->latest();
  TESSERA_CHECK_AS(
      StateError, number > 0, "stream.wait",
      "stream \"{}\" waits for event \"{}\", which was never recorded; record it first", self.name,
      event.name());
  trace_event(EventAction::kWait, event, number, self.id);
  if (self.device.is_null()) return;
  const bool waits = gpu_mark != nullptr || (mark != nullptr && !mark->fired_without_error());
  if (!waits) return;
  std::shared_ptr<TracedWork> times;
  const WorkThread thread = self.queue ? WorkThread::kStream : WorkThread::kHost;
  if (!self.gpu) times = traced_work("wait", self.id, self.name, thread);
  if (gpu_mark != nullptr)
    return wait_for_gpu(gpu_mark, self.gpu.get(), self.queue.get(), std::move(times));
  if (self.queue) return self.queue->wait(mark, std::move(times));
  const WorkTimer timer(times.get());
  if (std::exception_ptr error = mark->wait()) std::rethrow_exception(std::move(error));
}

DeviceEvent DeviceStream::record(std::string event_name) const {
  DeviceEvent event(std::move(event_name));
  event.record(*this);
  return event;
}

void DeviceStream::synchronize() const {
  const Impl& self = impl();
  if (ExecutionTrace* trace = active_trace()) {
    trace->add(EventRecord{EventAction::kSynchronize, 0, 0, self.id, self.name});
  }
  const std::shared_ptr<TracedWork> times = host_wait();
  const WorkTimer timer(times.get());
  if (self.queue) self.queue->synchronize();
  if (self.gpu) self.gpu->synchronize();
}

CUstream_st* DeviceStream::cuda_handle() const { return cuda_queue().handle(); }

cuda::Queue& DeviceStream::cuda_queue() const {
  const Impl& self = impl();
  TESSERA_CHECK_AS(StateError, self.gpu != nullptr, "stream.cuda_handle",
                   "stream \"{}\" is of device {}, not of a GPU", self.name, self.device.str());
  return *self.gpu;
}

DeviceEvent::DeviceEvent(std::string name)
    : impl_(std::make_shared<Impl>(next_event_id(), std::move(name))) {}

void DeviceEvent::record(const DeviceStream& stream) {
  const DeviceStream::Impl& target = stream.impl();
  std::shared_ptr<Mark> mark;  // null: reached as soon as it is recorded
  std::shared_ptr<const cuda::Mark> gpu_mark;
  if (target.queue) mark = std::make_shared<Mark>();
  if (target.gpu) gpu_mark = target.gpu->record();
  const std::uint64_t number = impl_->set_latest(mark, std::move(gpu_mark));
  trace_event(EventAction::kRecord, *this, number, target.id);
  if (mark) target.queue->record(std::move(mark));
}

bool DeviceEvent::is_recorded() const { return impl_->latest().number > 0; }

bool DeviceEvent::is_ready() const {
  const auto [mark, gpu_mark, number] = impl_->latest();
  TESSERA_CHECK_AS(StateError, number > 0, "event.is_ready",
                   "event \"{}\" was never recorded; record it first", name());
  if (gpu_mark != nullptr) return gpu_mark->reached();
  return mark == nullptr || mark->fired();
}

void DeviceEvent::synchronize() const {
  const auto [mark, gpu_mark, number] = impl_->latest();
  TESSERA_CHECK_AS(StateError, number > 0, "event.synchronize",
                   "event \"{}\" was never recorded; record it first", name());
  trace_event(EventAction::kWait, *this, number, 0);
  const std::shared_ptr<TracedWork> times = host_wait();
  const WorkTimer timer(times.get());
  if (gpu_mark != nullptr) return gpu_mark->synchronize();
  if (mark == nullptr) return;
  if (std::exception_ptr error = mark->wait()) std::rethrow_exception(std::move(error));
}

std::uint64_t DeviceEvent::id() const { return impl_->id; }
const std::string& DeviceEvent::name() const { return impl_->name; }

void stream_sleep(const DeviceStream& stream, double milliseconds) {
  TESSERA_CHECK(milliseconds >= 0, "stream_sleep", "cannot sleep {} ms; give 0 or more",
                milliseconds);
  if (ExecutionTrace* trace = active_trace()) {
    KernelRecord record;
    record.name = "stream_sleep";
    record.stream = stream.id();
    trace->add(std::move(record));
  }
  if (stream.device().is_cuda()) return stream.cuda_queue().sleep(milliseconds);
  stream.enqueue("stream_sleep", [milliseconds] {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
  });
}

namespace {

struct CurrentStreams {
  DeviceStream cpu;
  DeviceStream null;
  std::vector<DeviceStream> cuda;
};

DeviceStream& slot_of(Device device) {
  thread_local CurrentStreams streams;
  switch (device.type) {
    case DeviceType::kCpu:
      return streams.cpu;
    case DeviceType::kNull:
      return streams.null;
    case DeviceType::kCuda:
      break;
  }
  TESSERA_CHECK(device.index >= 0, "current_stream", "device {} does not exist", device.str());
  const auto index = static_cast<std::size_t>(device.index);
  if (streams.cuda.size() <= index) streams.cuda.resize(index + 1);
  return streams.cuda[index];
}

}  // namespace

const DeviceStream& current_stream(Device device) {
  DeviceStream& slot = slot_of(device);
  if (!slot.defined()) [[unlikely]] {
    slot = DeviceStream::create(device, StreamKind::kInline, "default");
  }
  return slot;
}

StreamGuard::StreamGuard(DeviceStream stream) : device_(stream.device()) {
  DeviceStream& slot = slot_of(device_);
  previous_ = std::exchange(slot, std::move(stream));
}

StreamGuard::~StreamGuard() { std::swap(slot_of(device_), previous_); }

}  // namespace tessera
