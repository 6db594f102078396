#pragma once

/// Streams whose work is recorded as a graph instead of running. Private to the emulated runtime.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_order.h"

namespace tessera::emulated {

class Stream;

/// What was captured, in the order in which hosts issued it.
struct GraphBody {
  std::vector<std::function<void()>> operations;
  std::vector<std::shared_ptr<void>> memory;  ///< allocated by the graph, at fixed addresses
};

/// One capture, from its begin to its end. Guarded by capture_mutex().
struct Capture {
  cudaStreamCaptureMode mode{};
  const Stream* origin = nullptr;
  std::thread::id thread;
  bool invalid = false;
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();  ///< null: it has ended
  std::vector<std::shared_ptr<Stream>> streams;  ///< those that joined, the origin first
};

/// A stream's part in a capture.
struct CaptureMember {
  std::shared_ptr<Capture> capture;  ///< null: work of the stream runs
  std::uint64_t operations = 0;      ///< captured on this stream
  Order order{};                     ///< what the next one will run behind
};

std::mutex& capture_mutex();
/// While it is 0, no stream needs to be asked whether it is being captured.
std::atomic<int>& captures_under_way();

/// Records `operation` if `stream` is being captured; false where it must run instead.
struct CaptureAnswer {
  bool captured = false;
  cudaError_t error = cudaSuccess;
};
CaptureAnswer capture_operation(Stream& stream, std::function<void()> operation);
/// Memory that lives as long as the graph that `stream` is captured into; false where it is not.
bool capture_memory(Stream& stream, std::shared_ptr<void> memory);
bool is_capturing(Stream& stream);
/// The stream goes: a capture that began on it ends, another one is broken.
void abandon_capture(Stream& stream);

/// For calls that would have to wait for work that is not running: returns the error that CUDA
/// returns if one of the streams is being captured, which ends that capture. cudaSuccess if none
/// is.
cudaError_t refuse_while_capturing(const std::vector<std::shared_ptr<Stream>>& streams,
                                   cudaError_t error);
/// For calls that CUDA calls potentially unsafe, such as cudaMalloc: the rules of
/// cudaThreadExchangeStreamCaptureMode.
cudaError_t refuse_unsafe_call();

}  // namespace tessera::emulated
