// Copies and fills. Copies from and to pageable memory are synchronous for the host, as CUDA says:
// what comes from there has been read when the call returns, what goes there has arrived.

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

namespace tessera::emulated {
namespace {

enum class Place { kPageable, kPinned, kDevice, kOutside };

// Where a range lies; kOutside: it begins in an allocation and leaves it.
Place place_of(const void* data, std::size_t bytes) {
  const std::optional<Allocation> found = find_allocation(data);
  if (!found) return Place::kPageable;
  const std::size_t first =
      static_cast<std::size_t>(static_cast<const std::byte*>(data) - found->memory.get());
  if (bytes > found->bytes - first) return Place::kOutside;
  return found->pinned ? Place::kPinned : Place::kDevice;
}

// Whether a side of a copy can be what the kind of the copy says of it.
bool agrees(Place place, bool said_device) {
  return said_device ? place != Place::kPageable : place != Place::kDevice;
}

struct Sides {
  Place to, from;
};

cudaError_t check(const Sides& sides, cudaMemcpyKind kind) {
  if (sides.to == Place::kOutside || sides.from == Place::kOutside) return cudaErrorInvalidValue;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return agrees(sides.to, to_device) && agrees(sides.from, from_device) ? cudaSuccess
                                                                        : cudaErrorInvalidValue;
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;

  void run(const void* source) const { std::memcpy(to, source, bytes); }
};

cudaError_t wait_for(const Handle& stream) {
  if (stream.stream == nullptr) return cudaSuccess;
  stream.stream->wait_for(stream.stream->last_ticket());
  return failure_of(stream.stream->device);
}

cudaError_t copy(const Copy& what, cudaMemcpyKind kind, const Handle& stream) {
  if (!stream.valid) return cudaErrorInvalidResourceHandle;
  if (what.bytes == 0) return cudaSuccess;
  if (what.to == nullptr || what.from == nullptr) return cudaErrorInvalidValue;
  const Sides sides{place_of(what.to, what.bytes), place_of(what.from, what.bytes)};
  if (const cudaError_t error = check(sides, kind); error != cudaSuccess) return error;
  const bool pageable = sides.to == Place::kPageable || sides.from == Place::kPageable;
  if (pageable && stream.stream != nullptr) {
    const cudaError_t error =
        refuse_while_capturing({stream.stream}, cudaErrorStreamCaptureUnsupported);
    if (error != cudaSuccess) return error;
  }
  if (sides.from != Place::kPageable) {
    const cudaError_t error = submit(stream, [what] { what.run(what.from); });
    return error != cudaSuccess || !pageable ? error : wait_for(stream);
  }
  const auto* begin = static_cast<const std::byte*>(what.from);
  auto staged = std::make_shared<std::vector<std::byte>>(begin, begin + what.bytes);
  const cudaError_t error = submit(stream, [what, staged] { what.run(staged->data()); });
  return error != cudaSuccess || sides.to != Place::kPageable ? error : wait_for(stream);
}

cudaError_t fill(void* data, int value, std::size_t bytes, const Handle& stream) {
  if (bytes == 0) return stream.valid ? cudaSuccess : cudaErrorInvalidResourceHandle;
  const Place place = place_of(data, bytes);
  if (place == Place::kPageable || place == Place::kOutside) return cudaErrorInvalidValue;
  return submit(stream, [=] { std::memset(data, value, bytes); });
}

}  // namespace

}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return copy({to, from, bytes}, kind, resolve(stream)); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call([&] {
    const cudaError_t error = refuse_unsafe_call();
    return error != cudaSuccess ? error : copy({to, from, bytes}, kind, {});
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&] { return fill(data, value, bytes, resolve(stream)); });
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return call([&] {
    const cudaError_t error = refuse_unsafe_call();
    return error != cudaSuccess ? error : fill(data, value, bytes, {});
  });
}

}  // extern "C"
