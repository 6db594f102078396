#pragma once

/// A complete checkpoint on the disk, to read parts of its tensors.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/tensor/io/chunk_checksums.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

/// Reads, checks and returns the text of the index; at most kMaxIndexBytes. Throws CheckpointError
/// for a folder without one.
std::string read_index_text(const std::string& folder);

/// Used by one thread at a time. Memory: the index, one chunk of a file, and one piece of a tensor of
/// about the same size.
class StoredCheckpoint {
 public:
  /// Throws CheckpointError unless the folder has a valid index, and every file that it names with its
  /// number of bytes.
  explicit StoredCheckpoint(std::string folder);
  /// The same with the text of its index, which another rank has read. Files are opened when they are
  /// read.
  StoredCheckpoint(std::string folder, const std::string& index_text);

  const std::string& folder() const { return folder_; }
  const Index& index() const { return index_; }
  /// Null if there is none.
  const StoredTensor* find(const std::string& name) const;

  /// Reads the elements of a box of a tensor into `out`, which has the box's extent, any strides,
  /// dtype and device; dtypes are converted as copy_() does. Throws CheckpointError that names the
  /// tensor and the damaged bytes.
  void read(const StoredTensor& tensor, const nn::ShardBox& box, const Tensor& out);
  /// Reads them and compares their checksums only. Throws as read().
  void check(const StoredTensor& tensor, const nn::ShardBox& box);

  /// Reads all files and compares all checksums. Returns a text for each damaged chunk, which names the
  /// file, the bytes and the tensors in them; nothing if all is as it was written.
  std::vector<std::string> damage();

 private:
  struct Region;

  ChecksummedFile& file(std::size_t number);
  std::string tensors_in(std::size_t number, std::uint64_t begin, std::uint64_t end) const;
  void read_box(const StoredTensor& tensor, const nn::ShardBox& box, const Tensor* out);
  void read_region(const Region& region, const Tensor& out);
  void copy_piece(const Region& region, const Tensor& out);
  template <class F>
  static void each_run(const Region& region, const F& function);

  std::string folder_;
  Index index_;
  std::map<std::string, const StoredTensor*, std::less<>> by_name_;
  std::size_t open_ = 0;                   // the number of file_
  std::unique_ptr<ChecksummedFile> file_;  // one at a time: a checkpoint may have thousands
  std::vector<std::byte> piece_;
};

}  // namespace tessera::checkpoint
