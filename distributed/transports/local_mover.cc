#include "tessera/distributed/transports/local_mover.h"

#include <cstring>

#include "tessera/distributed/transports/reduce_in_order.h"
#include "tessera/distributed/transports/reduce_on_gpu.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera::distributed {
namespace {

class CpuMover final : public LocalMover {
 public:
  LocalMark mark() override { return std::nullopt; }
  void wait(const LocalMark&) override {}
  void check_reach(const LocalCalls&, int) const override {}
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  void clear(std::byte* to, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }
  void reduce(const ResolvedCollective& call, std::span<const void* const> sources, void* out,
              std::int64_t count) override {
    reduce_in_order(call.dtype, call.reduce, sources, out, count);
  }
};

class GpuMover final : public LocalMover {
 public:
  explicit GpuMover(const Stream& stream) : stream_(stream) {}

  LocalMark mark() override { return stream_.record("local collective"); }
  void wait(const LocalMark& mark) override {
    if (mark) stream_.wait(*mark);
  }

  // Copies pass through the host where they must; a kernel that adds cannot.
  void check_reach(const LocalCalls& calls, int rank) const override {
    const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
    if (!is_reduction(mine.kind)) return;
    TESSERA_CHECK(static_cast<int>(calls.size()) <= kMostGpuSources, mine.site.op.c_str(),
                  "{} is over {} ranks; on GPUs rank threads add up at most {}", mine.str(),
                  calls.size(), kMostGpuSources);
    for (const ResolvedCollective* peer : calls) {
      TESSERA_CHECK_AS(
          DeviceError, stream_.cuda_queue().reaches(peer->device.index), mine.site.op.c_str(),
          "{}: {} cannot read the memory of {}, where rank {} is; put the ranks on one "
          "GPU",
          mine.str(), mine.device.str(), peer->device.str(), peer->site.rank);
    }
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0 && to != from) stream_.cuda_queue().copy(to, from, bytes);
  }

  void clear(std::byte* to, std::size_t bytes) override {
    if (bytes > 0) stream_.cuda_queue().fill_bytes(to, 0, bytes);
  }

  void reduce(const ResolvedCollective& call, std::span<const void* const> sources, void* out,
              std::int64_t count) override {
    if constexpr (kBuiltWithCuda) {
      const cuda::DeviceGuard guard(stream_.device().index);
      reduce_on_gpu(stream_.cuda_handle(), call.dtype, call.reduce, sources, out, count);
    }
  }

 private:
  const Stream stream_;
};

}  // namespace

LocalMover& cpu_mover() {
  static CpuMover mover;
  return mover;
}

std::unique_ptr<LocalMover> make_gpu_mover(const Stream& stream) {
  return std::make_unique<GpuMover>(stream);
}

}  // namespace tessera::distributed
