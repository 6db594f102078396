#pragma once

/// Streams whose work is recorded as a CUDA graph, by whomever, and threads that must not break
/// that. For this folder and those who issue work beside it.

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

/// Whether work issued on the stream becomes part of a graph instead of running. Throws DeviceError
/// for `where`.
bool is_capturing(CUstream_st* stream, const char* where);

/// Until the end of the scope, the calling thread may do what would break a capture, of its own or
/// of another thread, if it meant the captured work, and does not: asking for eager work, taking
/// memory.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_;
};

}  // namespace tessera::cuda
