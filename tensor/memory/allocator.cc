#include "tessera/tensor/memory/allocator.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/memory/memory_holders.h"
#include "tessera/tensor/memory/pinned_blocks.h"
#include "tessera/tensor/memory/stream_pool.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream_impl.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

constexpr int kNanByte = 0xFF;
constexpr int kNamedHolders = 5;  // largest holders named in an OutOfMemory error

bool poisons_new_blocks() {
#ifdef NDEBUG
  static const bool poisons = [] {
    const char* value = std::getenv("TESSERA_POISON");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return poisons;
#else
  return true;
#endif
}

/// Addresses without memory: dereferencing one faults.
void* reserve_null_address(std::size_t bytes) {
  static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 62};
  const std::size_t step = (bytes / 256 + 1) * 256;
  return reinterpret_cast<void*>(next.fetch_add(step, std::memory_order_relaxed));
}

struct Held {
  std::size_t bytes = 0;
  std::size_t kept = 0;
};

// Device memory held by this process.
Held held_memory(Device device) {
  if (device.is_cuda()) {
    const CudaMemory memory = cuda_memory(device);
    return {.bytes = memory.reserved, .kept = memory.reserved - memory.in_use};
  }
  const CpuMemory memory = cpu_memory();
  return {.bytes = memory.from_system, .kept = memory.kept};
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes, const DeviceStream& stream,
                                      MemoryCategory category, const MemoryCounters& counters) {
  const MemoryReading live = counters.current();
  std::string list;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto each = static_cast<MemoryCategory>(i);
    list += fmt::format("{}{} {}", i == 0 ? "" : ", ", memory_category_name(each), live[each]);
  }
  std::string holders;
  for (const MemoryHolder& holder : largest_memory_holders(kNamedHolders)) {
    holders += fmt::format("{}{} {} ({})", holders.empty() ? "" : ", ", holder.name, holder.bytes,
                           memory_category_name(holder.category));
  }
  const Held held = held_memory(stream.device());
  throw_error<OutOfMemory>(
      "allocator",
      "no room on {} for {} bytes of category {}, taken on stream \"{}\"; live bytes of this rank: "
      "{}, together {}; largest: {}; this process holds {} bytes, {} of them kept for reuse; use "
      "smaller "
      "batches "
      "or more ranks",
      stream.device().str(), bytes, memory_category_name(category), stream.name(), list,
      live.total(), holders.empty() ? "none of 1 MiB" : holders, held.bytes, held.kept);
}

}  // namespace

std::int64_t counted_bytes(DeviceType type, std::size_t bytes) {
  const std::size_t unit = type == DeviceType::kCuda ? 512 : 64;
  return static_cast<std::int64_t>((bytes + unit - 1) / unit * unit);
}

MemoryBlock MemoryBlock::take(std::size_t bytes, const DeviceStream& stream,
                              MemoryCategory category) {
  const DeviceStream::Impl& target = stream.impl();
  MemoryCounters& counters = current_rank_context()->memory();
  MemoryBlock block;
  block.bytes_ = bytes;
  block.device_ = target.device.type;
  block.category_ = category;
  if (bytes > kMaxBlockBytes) throw_out_of_memory(bytes, stream, category, counters);
  if (target.device.is_cpu()) {
    const auto [data, size_class] = target.pool->take(size_class_of(bytes));
    if (data == nullptr) throw_out_of_memory(bytes, stream, category, counters);
    block.data_ = data;
    block.size_class_ = size_class;
    block.pool_ = target.pool.get();
  } else if (target.gpu && bytes > 0) {
    block.data_ = target.gpu->take(static_cast<std::size_t>(block.counted_bytes()));
    if (block.data_ == nullptr) throw_out_of_memory(bytes, stream, category, counters);
    block.gpu_ = target.gpu.get();
  } else {
    block.data_ = reserve_null_address(bytes);
  }
  block.count(category);
  if (target.device.is_cpu() && poisons_new_blocks()) {
    // In stream order: earlier work of the stream may still be using a block that was returned.
    stream.enqueue("poison", [data = block.data_, bytes] { std::memset(data, kNanByte, bytes); });
  } else if (block.gpu_ != nullptr && poisons_new_blocks()) {
    block.gpu_->fill_bytes(block.data_, kNanByte, bytes);
  }
  return block;
}

MemoryBlock MemoryBlock::take_pinned(std::size_t bytes, const DeviceStream& stream,
                                     MemoryCategory category) {
  if (bytes == 0 || cuda_device_count() == 0) return take(bytes, stream, category);
  MemoryBlock block;
  block.bytes_ = bytes;
  block.data_ = detail::take_pinned_block(bytes);
  if (block.data_ == nullptr)
    throw_out_of_memory(bytes, stream, category, current_rank_context()->memory());
  block.pinned_ = std::make_unique<Pinned>(Pinned{stream, {}});
  block.count(category);
  if (poisons_new_blocks()) std::memset(block.data_, kNanByte, bytes);
  return block;
}

bool MemoryBlock::belongs_to(const DeviceStream& stream) const {
  if (empty()) return false;
  if (pinned_) return pinned_->stream == stream;
  const DeviceStream::Impl& target = stream.impl();
  // Each stream has a pool of its own; the null device, where nothing runs, has none.
  return device_ == target.device.type && pool_ == target.pool.get() && gpu_ == target.gpu.get() &&
         (gpu_ == nullptr || gpu_->may_reuse(data_));
}

void MemoryBlock::count(MemoryCategory category) {
  category_ = category;
  if (bytes_ == 0) return;
  MemoryCounters& counters = current_rank_context()->memory();
  counters.add(category, counted_bytes());
  counters_ = &counters;
}

MemoryBlock::MemoryBlock(MemoryBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      category_(other.category_),
      size_class_(other.size_class_),
      pool_(other.pool_),
      gpu_(other.gpu_),
      counters_(other.counters_),
      detach_note_(std::move(other.detach_note_)),
      pinned_(std::move(other.pinned_)) {}

MemoryBlock& MemoryBlock::operator=(MemoryBlock&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  device_ = other.device_;
  category_ = other.category_;
  size_class_ = other.size_class_;
  pool_ = other.pool_;
  gpu_ = other.gpu_;
  counters_ = other.counters_;
  detach_note_ = std::move(other.detach_note_);
  pinned_ = std::move(other.pinned_);
  return *this;
}

std::int64_t MemoryBlock::counted_bytes() const { return tessera::counted_bytes(device_, bytes_); }

void MemoryBlock::give_back() noexcept {
  if (data_ == nullptr) return;
  if (detach_note_) trace_free();
  if (counters_ != nullptr) counters_->subtract(category_, counted_bytes());
  if (pool_ != nullptr) pool_->give_back({.data = data_, .size_class = size_class_});
  if (gpu_ != nullptr) gpu_->give_back(data_);
  if (pinned_ != nullptr) {
    detail::give_back_pinned_block(data_, bytes_,
                                   {std::move(pinned_->stream), std::move(pinned_->transfers)});
    pinned_.reset();
  }
  data_ = nullptr;
  bytes_ = 0;
  detach_note_.reset();
}

void MemoryBlock::trace_free() const noexcept {
  try {
    if (ExecutionTrace* trace = active_trace()) {
      trace->add(StorageRecord{StorageAction::kFree, detach_note_->storage, counted_bytes(),
                               category_, detach_note_->name});
    }
  } catch (...) {
    // No host memory for a record: the bytes are returned all the same.
  }
}

std::size_t cached_cpu_bytes() { return cpu_memory().kept; }

void empty_cpu_cache() { release_kept_cpu_memory(); }

void set_cpu_memory_limit(std::size_t bytes) { set_cpu_memory_bound(bytes); }

}  // namespace tessera
