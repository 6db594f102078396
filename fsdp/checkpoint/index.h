#pragma once

/// The index of a checkpoint: a JSON file that says what the checkpoint holds and where. It describes
/// whole tensors, so neither the number of ranks nor their sharding matters to a reader.
///
///     {"tessera_checkpoint": 1,
///      "files": [{"name": "rank-00000.safetensors", "bytes": 4242, "xxh3": ["0123456789abcdef"]}],
///      "tensors": [{"name": "model.up.weight", "dtype": "f32", "shape": [8, 3],
///                   "boxes": [{"file": 0, "begin": 128, "offset": [0, 0], "extent": [4, 3]}, ...]}],
///      "values": [{"name": "step", "kind": "integer", "text": "120"}],
///      "checksum": "0123456789abcdef"}
///
/// `begin` is the position of a box's first element in its file; its elements are row-major, without
/// gaps. `xxh3` has a checksum for each chunk of the file (tensor/io/chunk_checksums.h). `checksum`
/// is that of the index before it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"

namespace tessera::checkpoint {

inline constexpr std::int64_t kFormatVersion = 1;
/// Its name in the checkpoint's folder.
inline constexpr const char* kIndexFile = "index.json";
/// Maximum size of an index in bytes, for reading and writing.
inline constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 28;

struct StoredFile {
  std::string name;  ///< without a folder
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> checksums;
  bool operator==(const StoredFile&) const = default;
};

struct StoredBox {
  nn::ShardBox box;
  std::size_t file = 0;  ///< position in Index::files
  std::uint64_t begin = 0;
  bool operator==(const StoredBox&) const = default;
};

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  ///< of the whole tensor
  std::vector<StoredBox> boxes;
  bool operator==(const StoredTensor&) const = default;
};

struct Index {
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
  nn::StateDict values;  ///< no tensors
};

/// Calls function(tensor, name without prefix) for the tensors under a prefix.
template <class F>
void each_tensor(const Index& index, std::string_view prefix, const F& function) {
  for (const StoredTensor& tensor : index.tensors) {
    if (tensor.name.starts_with(prefix)) function(tensor, tensor.name.substr(prefix.size()));
  }
}

/// The file's text. Throws InvalidArgument for a name or text that is not UTF-8, and for a text of
/// more than kMaxIndexBytes.
std::string index_text(const Index& index);

/// Parses the text of the file `path`. The text is untrusted: everything is checked before anything
/// is allocated by its numbers. Throws CheckpointError with the file, the tensor and what is wrong
/// unless the checksum is right, names are unique, files lie in the checkpoint's folder, and the boxes of
/// each tensor lie inside it and inside their files, have each of its elements once, and need no more
/// bytes than their files have.
Index parse_index(const std::string& path, std::string_view text);

}  // namespace tessera::checkpoint
