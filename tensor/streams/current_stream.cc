#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera {
namespace {

struct CurrentStreams {
  Stream cpu;
  Stream null;
  std::vector<Stream> cuda;
};

Stream& slot_of(Device device) {
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

const Stream& current_stream(Device device) {
  Stream& slot = slot_of(device);
  if (!slot.defined()) [[unlikely]] {
    slot = Stream::create(device, StreamKind::kInline, "default");
  }
  return slot;
}

StreamGuard::StreamGuard(Stream stream) : device_(stream.device()) {
  Stream& slot = slot_of(device_);
  previous_ = std::exchange(slot, std::move(stream));
}

StreamGuard::~StreamGuard() { std::swap(slot_of(device_), previous_); }

}  // namespace tessera
