#pragma once

/// Named tensors in one file of the safetensors format, as other frameworks read and write it.
///
///     write_safetensors("model.safetensors", {{"up.weight", weight}, {"up.bias", bias}});
///     SafetensorsFile file("model.safetensors");
///     Tensor weight = file.read("up.weight");
///
/// The file: 8 bytes of header length, little-endian; a JSON header that gives each name its dtype,
/// shape and range of bytes, and may hold texts under "__metadata__"; the elements, row-major,
/// little-endian, without gaps. Files come from strangers, so nothing in one is believed: a header
/// whose ranges overlap, leave gaps, differ from dtype and shape, or leave the file is refused.
///
/// Format: https://github.com/huggingface/safetensors#format.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Longest header read or written, in bytes; the format's own limit.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Keys and texts, both UTF-8, in the order of the file.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// Writes all tensors to `path`, replacing a file there only once the new one is complete on the
/// disk. The header keeps the order given; the elements are ordered by size, so that each tensor is
/// aligned to its own. Tensors may be strided; each is copied to the host in turn. Tensors that
/// share a storage are written once each.
///
/// Throws InvalidArgument for an undefined tensor, a name or key that stands twice, the name
/// "__metadata__", text that is not UTF-8, or a header that gets too long; StateError for a tensor
/// on the null device; CheckpointError when the file cannot be written.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const SafetensorsMetadata& metadata = {});

/// What a file says about one tensor.
struct SafetensorsInfo {
  std::string name;
  std::string dtype_name;      ///< as in the file: "BF16"
  std::optional<DType> dtype;  ///< nothing where Tessera has no such dtype ("F8_E4M3", "U16", ...)
  Shape shape;
  std::uint64_t begin = 0;  ///< of its bytes, counted from the start of the file
  std::uint64_t end = 0;
};

/// An open file. Opening reads and checks the header; read() reads the bytes of one tensor. Moves,
/// does not copy; several threads may read from one file.
class SafetensorsFile {
 public:
  /// Throws CheckpointError, naming the file and where in it, when it cannot be read or is not a
  /// whole and consistent safetensors file; also for a tensor of more than kMaxDims dims.
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const;
  const std::vector<SafetensorsInfo>& tensors() const;  ///< in the order of the header
  const SafetensorsMetadata& metadata() const;
  bool contains(const std::string& name) const;
  /// Throws InvalidArgument where there is no such tensor.
  const SafetensorsInfo& info(const std::string& name) const;

  /// A new tensor, contiguous. On the null device nothing is read. A bool is true for any byte but
  /// 0. Throws InvalidArgument where there is no such tensor; CheckpointError for a dtype that
  /// Tessera has not, naming tensor and dtype, and for a file that shrank since it was opened.
  Tensor read(const std::string& name, Device device = default_device()) const;
  /// Into a tensor of the same shape, any strides, on any device, converted as copy_() converts;
  /// counts as a write to it. Throws as read(), and InvalidArgument for another shape.
  void read_into(const std::string& name, const Tensor& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
