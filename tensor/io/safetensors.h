#pragma once

/// Named tensors in one file of the safetensors format, compatible with other frameworks.
///
///     write_safetensors("model.safetensors", {{"up.weight", weight}, {"up.bias", bias}});
///     SafetensorsFile file("model.safetensors");
///     Tensor weight = file.read("up.weight");
///
/// A file has 8 bytes of header length, little-endian; a JSON header with the dtype, shape and byte
/// range of each name, and optional strings under "__metadata__"; then the elements, row-major,
/// little-endian, without gaps. Files are untrusted input: a header whose ranges overlap, leave
/// gaps, do not match dtype and shape, or exceed the file is an error.
///
/// Format: https://github.com/huggingface/safetensors#format.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/io/byte_sink.h"
#include "tessera/tensor/shape.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Maximum header length for reading and writing, in bytes; the limit of the format.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Keys and values, both UTF-8, in the order of the file.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// The header's entry for one tensor.
struct SafetensorsInfo {
  std::string name;
  std::string dtype_name;      ///< as in the file: "BF16"
  std::optional<DType> dtype;  ///< empty for dtypes that Tessera does not have ("F8_E4M3", "U16",
                               ///< ...)
  Shape shape;
  std::uint64_t begin = 0;  ///< of its bytes, from the start of the file
  std::uint64_t end = 0;
};

/// Writes all tensors to `path`. An existing file is replaced only once the new one is complete on
/// the disk. The header keeps the given order; the elements are ordered by element size, so that
/// each tensor is aligned to it. Tensors may be strided; they are copied to the host one after
/// another. Tensors that share a storage are each written in full.
///
/// Throws InvalidArgument for an undefined tensor, a duplicate name or key, the name
/// "__metadata__", text that is not UTF-8, or a header that is too long; StateError for a tensor on
/// the null device; CheckpointError if the file cannot be written.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const SafetensorsMetadata& metadata = {});
/// A tensor that is made when it is written, so that a file needs no more memory than its largest one.
struct SafetensorsSource {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<Tensor()> read;  ///< a tensor of that dtype and shape
};
/// The positions of tensors of these dtypes in the order in which a file has their elements.
std::vector<std::size_t> safetensors_order(const std::vector<DType>& dtypes);
/// The same bytes from sources, which are read one after another in that order. Throws what they throw, too, and
/// InvalidArgument for a source whose tensor has another dtype or shape.
void write_safetensors_from(const std::string& path, const std::vector<SafetensorsSource>& tensors,
                            const SafetensorsMetadata& metadata = {});
/// The same bytes to a sink. Returns the entries of the tensors, in the given order. Throws as above,
/// and what the sink throws.
std::vector<SafetensorsInfo> write_safetensors(
    ByteSink& sink, const std::vector<std::pair<std::string, Tensor>>& tensors,
    const SafetensorsMetadata& metadata = {});

/// An open file. Opening reads and checks the header; read() reads the bytes of one tensor.
/// Movable, not copyable; several threads may read from one file.
class SafetensorsFile {
 public:
  /// Throws CheckpointError with the file and the position in it if the file cannot be read or is
  /// not a complete and consistent safetensors file, also for a tensor of more than kMaxDims dims.
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const;
  const std::vector<SafetensorsInfo>& tensors() const;  ///< in the order of the header
  const SafetensorsMetadata& metadata() const;
  bool contains(const std::string& name) const;
  /// Throws InvalidArgument if the tensor does not exist.
  const SafetensorsInfo& info(const std::string& name) const;

  /// A new contiguous tensor. On the null device nothing is read. A bool is true for any byte but
  /// 0. Throws InvalidArgument if the tensor does not exist; CheckpointError for a dtype that
  /// Tessera does not have, with tensor and dtype, and for a file that has shrunk since it was
  /// opened.
  Tensor read(const std::string& name, Device device = default_device()) const;
  /// Reads into a tensor of the same shape, with any strides, on any device; converts dtypes as
  /// copy_() does; counts as a write to it. Throws as read(), and InvalidArgument for another
  /// shape.
  void read_into(const std::string& name, const Tensor& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
