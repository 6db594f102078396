#pragma once

/// The bytes behind tensors: a shared handle to memory that can be released and refilled *in
/// place*.
///
/// release() returns the bytes, materialize() allocates them again. Tensors that view the storage,
/// including tensors saved for backward, stay valid and see the refilled contents: pointers are
/// resolved when a kernel is launched. Using a storage that is not ready throws StateError naming
/// it.
///
///     kReady     has bytes; any operation may use them
///     kFilling   has bytes; only the owner writes them (a gather is running); see begin_fill()
///     kReleased  no bytes
///
/// Not thread-safe: a storage is used by its rank's thread. Copies of the handle share one storage.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/tensor/device.h"
#include "tessera/tensor/memory/allocator.h"

namespace tessera {

enum class StorageState : std::uint8_t { kReady, kFilling, kReleased };

class TensorStorage {
 public:
  TensorStorage() = default;  ///< null handle
  /// A released storage of `bytes`. `name` appears in errors and traces; may be empty for
  /// temporaries.
  static TensorStorage create(Device device, std::size_t bytes, MemoryCategory category,
                              std::string name = {});

  bool defined() const { return impl_ != nullptr; }
  std::uint64_t id() const;  ///< unique in the process
  Device device() const;
  std::size_t bytes() const;
  MemoryCategory category() const;
  const std::string& name() const;
  StorageState state() const;

  /// The next materialize() and later ones use page-locked memory, which a GPU copies from and to
  /// asynchronously. For CPU storages; no effect if there is no GPU.
  void pin();
  /// Whether its memory is page-locked now.
  bool is_pinned() const;
  /// Number of handles that share this storage, this one included.
  std::int64_t use_count() const { return impl_.use_count(); }
  /// MemoryBlock::belongs_to of its memory. False while released.
  bool belongs_to(const DeviceStream& stream) const;
  /// A GPU copies from or to the memory until `done`: data() then waits for it on the host. For
  /// pinned storages.
  void note_transfer(DeviceEvent done);

  /// released -> ready, with memory of the current stream. Contents are undefined. No-op when ready
  /// or filling.
  void materialize();
  /// -> released; the bytes are returned at once. No-op when released.
  void release();
  /// -> released, permanently, because the owner is gone. Any later use throws a StateError that
  /// contains `why`.
  void retire(std::string why);
  /// -> released, but the returned block keeps the bytes until it is destroyed. The caller destroys
  /// it after the stream that will reuse the bytes waits for their last reader.
  [[nodiscard]] MemoryBlock detach();

  /// ready -> filling. The owner writes through `filling_data()`; any other access throws. No-op
  /// when filling.
  void begin_fill();
  /// filling -> ready. Does not increment the version: a refill by the owner is not an overwrite.
  /// No-op when ready.
  void end_fill();

  /// The address. First waits for GPU copies (note_transfer). Throws StateError unless ready.
  void* data() const;
  /// The address for the owner while filling. Throws StateError when released.
  void* filling_data() const;

  bool operator==(const TensorStorage& other) const { return impl_ == other.impl_; }

 private:
  void wait_for_transfers() const;
  struct Impl;
  Impl& impl() const;  // throws StateError for a null handle
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera
