#pragma once

/// The bytes behind tensors: a shared handle to memory that can be emptied and refilled *in place*.
///
/// release() gives the bytes back, materialize() takes bytes again; tensors that view the storage,
/// saved ones included, stay valid and see the refilled contents. Pointers are resolved when a
/// kernel is launched, and using storage that is not ready throws StateError naming it.
///
///     kReady     bytes are there, any operation may use them
///     kFilling   bytes are there, only their owner writes them (a gather under way); see FillScope
///     kReleased  no bytes
///
/// Not thread-safe: a storage is driven by the thread of its rank. Copies of the handle share one
/// storage.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/tensor/device.h"
#include "tessera/tensor/memory/allocator.h"

namespace tessera {

enum class StorageState : std::uint8_t { kReady, kFilling, kReleased };

class Storage {
 public:
  Storage() = default;  ///< null handle
  /// A released storage of `bytes`. `name` stands in errors and traces; empty is fine for
  /// temporaries.
  static Storage create(Device device, std::size_t bytes, MemoryCategory category,
                        std::string name = {});

  bool defined() const { return impl_ != nullptr; }
  std::uint64_t id() const;  ///< unique in the process
  Device device() const;
  std::size_t bytes() const;
  MemoryCategory category() const;
  const std::string& name() const;
  StorageState state() const;

  /// From the next materialize() on in page-locked memory, which a GPU copies from and to while the
  /// host goes on. For storages of the CPU; no effect where there is no GPU.
  void pin();
  /// Whether its memory is page-locked now.
  bool is_pinned() const;
  /// Handles that share this storage, this one included.
  std::int64_t use_count() const { return impl_.use_count(); }
  /// Block::belongs_to of its memory. False while released.
  bool belongs_to(const Stream& stream) const;
  /// A GPU copies from or to the memory until `done`: whoever asks for the address waits on the
  /// host. Of a pinned storage.
  void note_transfer(Event done);

  /// released -> ready, with memory of the current stream. Contents are arbitrary. No-op when ready
  /// or filling.
  void materialize();
  /// -> released; the bytes go back at once. No-op when released.
  void release();
  /// -> released, for good: its owner is gone. Whoever uses it or asks for its bytes from now on is
  /// told `why` by the StateError.
  void retire(std::string why);
  /// -> released, but the bytes live on in the returned block: they go back when it is destroyed,
  /// which the caller does once the stream that reuses them waits for their last reader.
  [[nodiscard]] Block detach();

  /// ready -> filling. The owner writes through `filling_data()`; everyone else's access throws.
  /// No-op when filling.
  void begin_fill();
  /// filling -> ready. No version counter moves: a refill by its owner is not an overwrite. No-op
  /// when ready.
  void end_fill();

  /// The address, once no GPU copies any more. Throws StateError unless ready.
  void* data() const;
  /// The address, for the owner while filling. Throws StateError when released.
  void* filling_data() const;

  bool operator==(const Storage& other) const { return impl_ == other.impl_; }

 private:
  void wait_for_transfers() const;
  struct Impl;
  Impl& impl() const;  // throws StateError for a null handle
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera
