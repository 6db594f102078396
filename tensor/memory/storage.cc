#include "tessera/tensor/memory/storage.h"

#include <atomic>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/memory_holders.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/trace.h"

namespace tessera {
namespace {

// A thread takes 1,024 ids at a time, so that threads do not contend for one counter per tensor.
constexpr std::uint64_t kIdsAtOnce = 1024;
thread_local std::uint64_t t_last_id = 0;

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> given{0};
  if (t_last_id % kIdsAtOnce == 0) {
    t_last_id = given.fetch_add(kIdsAtOnce, std::memory_order_relaxed);
  }
  return ++t_last_id;
}

}  // namespace

struct TensorStorage::Impl {
  Impl(Device device_in, std::size_t bytes_in, MemoryCategory category_in, std::string name_in)
      : id(next_id()),
        bytes(bytes_in),
        device(device_in),
        category(category_in),
        name(std::move(name_in)) {}
  ~Impl() {
    trace_release();
    unlist();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void trace(StorageAction action) const {
    if (ExecutionTrace* active = active_trace()) {
      active->add(StorageRecord{action, id, block.counted_bytes(), category, name});
    }
  }
  void trace_release() const noexcept {
    if (block.empty()) return;
    try {
      trace(StorageAction::kRelease);
    } catch (...) {
      // No host memory for a record: the bytes are returned all the same.
    }
  }
  // Lists it among the large storages that OutOfMemory errors name, from the time bytes are
  // allocated.
  void list() {
    if (block.counted_bytes() < detail::kLeastListedBytes) return;
    const std::string path = current_scope_path();
    std::string holder = name;
    if (name.empty()) holder = fmt::format("#{}{}{}", id, path.empty() ? "" : " made in ", path);
    detail::list_memory_holder(
        this, {.name = std::move(holder), .bytes = block.counted_bytes(), .category = category});
    listed = true;
  }
  void unlist() noexcept {
    if (std::exchange(listed, false)) detail::unlist_memory_holder(this);
  }
  std::string label() const {
    return name.empty() ? fmt::format("#{} of {} bytes", id, bytes)
                        : fmt::format("\"{}\" (#{}, {} bytes)", name, id, bytes);
  }
  [[noreturn]] void throw_not_ready(const char* where) const {
    TESSERA_CHECK_AS(StateError, state == StorageState::kReleased, where,
                     "storage {} is being filled by its owner; wait until the fill has ended",
                     label());
    if (!retired.empty())
      throw_error<StateError>(where, "storage {} is released for good: {}", label(), retired);
    throw_error<StateError>(where, "storage {} is released; materialize it before use", label());
  }

  const std::uint64_t id;
  const std::size_t bytes;
  const Device device;
  const MemoryCategory category;
  StorageState state = StorageState::kReleased;
  const std::string name;
  std::string retired;  // why it can never be ready again; empty: it can
  MemoryBlock block;
  bool listed = false;
  bool pins = false;
};

TensorStorage TensorStorage::create(Device device, std::size_t bytes, MemoryCategory category,
                                    std::string name) {
  TensorStorage out;
  out.impl_ = std::make_shared<Impl>(device, bytes, category, std::move(name));
  return out;
}

TensorStorage::Impl& TensorStorage::impl() const {
  TESSERA_CHECK_AS(StateError, impl_ != nullptr, "storage",
                   "this handle holds no storage; make one with Storage::create");
  return *impl_;
}

std::uint64_t TensorStorage::id() const { return impl().id; }
Device TensorStorage::device() const { return impl().device; }
std::size_t TensorStorage::bytes() const { return impl().bytes; }
MemoryCategory TensorStorage::category() const { return impl().category; }
const std::string& TensorStorage::name() const { return impl().name; }
StorageState TensorStorage::state() const { return impl().state; }

void TensorStorage::pin() {
  TESSERA_CHECK(impl().device.is_cpu(), "storage.pin",
                "storage {} is on {}: only the host's memory "
                "can be page-locked",
                impl().label(), impl().device.str());
  impl().pins = true;
}

bool TensorStorage::is_pinned() const { return impl().block.pinned_ != nullptr; }

bool TensorStorage::belongs_to(const DeviceStream& stream) const {
  return impl().block.belongs_to(stream);
}

void TensorStorage::note_transfer(DeviceEvent done) {
  Impl& self = impl();
  TESSERA_CHECK_AS(StateError, is_pinned(), "storage.note_transfer", "storage {} is not pinned",
                   self.label());
  std::vector<DeviceEvent>& transfers = self.block.pinned_->transfers;
  std::erase_if(transfers, [](const DeviceEvent& each) { return each.is_ready(); });
  transfers.push_back(std::move(done));
}

void TensorStorage::materialize() {
  Impl& self = impl();
  if (self.state != StorageState::kReleased) return;
  if (!self.retired.empty()) self.throw_not_ready("storage.materialize");
  const DeviceStream& stream = current_stream(self.device);
  self.block = self.pins ? MemoryBlock::take_pinned(self.bytes, stream, self.category)
                         : MemoryBlock::take(self.bytes, stream, self.category);
  self.state = StorageState::kReady;
  self.list();
  self.trace(StorageAction::kMaterialize);
}

void TensorStorage::release() {
  Impl& self = impl();
  if (self.state == StorageState::kReleased) return;
  self.trace(StorageAction::kRelease);
  self.unlist();
  self.block = MemoryBlock();
  self.state = StorageState::kReleased;
}

void TensorStorage::retire(std::string why) {
  release();
  impl().retired = std::move(why);
}

MemoryBlock TensorStorage::detach() {
  Impl& self = impl();
  if (self.state == StorageState::kReleased) return {};
  self.trace(StorageAction::kDetach);
  self.unlist();
  self.block.detach_note_ =
      std::make_unique<MemoryBlock::DetachNote>(MemoryBlock::DetachNote{self.id, self.name});
  self.state = StorageState::kReleased;
  return std::move(self.block);
}

void TensorStorage::begin_fill() {
  Impl& self = impl();
  if (self.state == StorageState::kReleased) self.throw_not_ready("storage.begin_fill");
  self.state = StorageState::kFilling;
}

void TensorStorage::end_fill() {
  Impl& self = impl();
  if (self.state == StorageState::kReleased) self.throw_not_ready("storage.end_fill");
  self.state = StorageState::kReady;
}

void TensorStorage::wait_for_transfers() const {
  for (const DeviceEvent& each : std::exchange(impl().block.pinned_->transfers, {}))
    each.synchronize();
}

void* TensorStorage::data() const {
  const Impl& self = impl();
  if (self.state != StorageState::kReady) [[unlikely]]
    self.throw_not_ready("storage.data");
  if (self.block.pinned_ != nullptr) [[unlikely]]
    wait_for_transfers();
  return self.block.data();
}

void* TensorStorage::filling_data() const {
  const Impl& self = impl();
  if (self.state == StorageState::kReleased) self.throw_not_ready("storage.filling_data");
  return self.block.data();
}

}  // namespace tessera
