#include "tessera/fsdp/checkpoint/stored_checkpoint.h"

#include <algorithm>
#include <utility>

#include "tessera/fsdp/checkpoint/boxes.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/input_file.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::checkpoint {
namespace {

constexpr const char* kWhere = "checkpoint.load";
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

std::string index_path(const std::string& folder) { return folder + "/" + kIndexFile; }

}  // namespace

std::string read_index_text(const std::string& folder) {
  const InputFile file(kWhere, index_path(folder));
  TESSERA_CHECK_AS(CheckpointError, file.size() <= kMaxIndexBytes, kWhere,
                   "\"{}\" has {} bytes; at most {} are read", file.path(), file.size(),
                   kMaxIndexBytes);
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

StoredCheckpoint::StoredCheckpoint(std::string folder)
    : StoredCheckpoint(folder, read_index_text(folder)) {
  for (std::size_t number = 0; number < index_.files.size(); ++number) file(number);
}

StoredCheckpoint::StoredCheckpoint(std::string folder, const std::string& index_text)
    : folder_(std::move(folder)), index_(parse_index(index_path(folder_), index_text)) {
  for (const StoredTensor& tensor : index_.tensors) by_name_.emplace(tensor.name, &tensor);
}

const StoredTensor* StoredCheckpoint::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

ChecksummedFile& StoredCheckpoint::file(std::size_t number) {
  if (file_ == nullptr || open_ != number) {
    const StoredFile& stored = index_.files[number];
    file_.reset();
    file_ = std::make_unique<ChecksummedFile>(kWhere, folder_ + "/" + stored.name, stored.bytes,
                                              stored.checksums);
    open_ = number;
  }
  return *file_;
}

// Elements of a stored box.
struct StoredCheckpoint::Region {
  const StoredBox* stored;
  DType dtype;
  Shape first;  // within the stored box
  Shape extent;
};

void StoredCheckpoint::read(const StoredTensor& tensor, const nn::ShardBox& box,
                            const Tensor& out) {
  read_box(tensor, box, &out);
}

void StoredCheckpoint::check(const StoredTensor& tensor, const nn::ShardBox& box) {
  read_box(tensor, box, nullptr);
}

// Without `out`, only checksums are compared.
void StoredCheckpoint::read_box(const StoredTensor& tensor, const nn::ShardBox& box,
                                const Tensor* out) {
  for (const StoredBox& stored : tensor.boxes) {
    const auto common = intersection(stored.box, box);
    if (!common) continue;
    Region region{.stored = &stored,
                  .dtype = tensor.dtype,
                  .first = common->offset,
                  .extent = common->extent};
    for (int d = 0; d < box.offset.ndim(); ++d) region.first[d] -= stored.box.offset[d];
    try {
      if (out == nullptr) {
        ChecksummedFile& from = file(stored.file);
        each_run(region,
                 [&](std::uint64_t begin, std::uint64_t bytes) { from.check(begin, bytes); });
        continue;
      }
      Tensor place = *out;
      for (int d = 0; d < box.offset.ndim(); ++d)
        place = place.narrow(d, common->offset[d] - box.offset[d], common->extent[d]);
      read_region(region, place);
    } catch (const CheckpointError& error) {
      const std::string_view text = error.what();
      throw_error<CheckpointError>(kWhere, "tensor \"{}\": {}", tensor.name,
                                   text.substr(error_text(kWhere, {}).size()));
    }
  }
}

// In pieces of the first dim that has several entries.
void StoredCheckpoint::read_region(const Region& region, const Tensor& out) {
  int d = 0;
  while (d < region.extent.ndim() && region.extent[d] == 1) ++d;
  const auto bytes = region.extent.numel() * static_cast<std::int64_t>(dtype_size(region.dtype));
  if (bytes <= kPieceBytes || d == region.extent.ndim()) return copy_piece(region, out);
  const std::int64_t entry = bytes / region.extent[d],
                     most = std::max<std::int64_t>(1, kPieceBytes / entry);
  for (std::int64_t at = 0; at < region.extent[d]; at += most) {
    Region part = region;
    part.first[d] += at;
    part.extent[d] = std::min(most, region.extent[d] - at);
    read_region(part, out.narrow(d, at, part.extent[d]));
  }
}

// Calls function(begin, bytes) for each run of elements that lie together in the file: the last dims, as
// far as they are complete.
template <class F>
void StoredCheckpoint::each_run(const Region& region, const F& function) {
  const Shape& stored = region.stored->box.extent;
  const std::size_t size = dtype_size(region.dtype);
  const int ndim = stored.ndim();
  int lead = std::max(ndim - 1, 0);
  while (lead > 0 && region.extent[lead] == stored[lead]) --lead;
  std::int64_t run = 1, runs = 1;
  for (int d = 0; d < ndim; ++d) (d < lead ? runs : run) *= region.extent[d];
  const Shape strides = contiguous_strides(stored);
  Shape index = Shape::filled(lead, 0);
  for (std::int64_t i = 0; i < runs; ++i) {
    std::int64_t element = 0;
    for (int d = 0; d < ndim; ++d)
      element += (region.first[d] + (d < lead ? index[d] : 0)) * strides[d];
    function(region.stored->begin + static_cast<std::uint64_t>(element) * size,
             static_cast<std::uint64_t>(run) * size);
    for (int d = lead - 1; d >= 0; --d) {
      if (++index[d] < region.extent[d]) break;
      index[d] = 0;
    }
  }
}

void StoredCheckpoint::copy_piece(const Region& region, const Tensor& out) {
  const auto elements = static_cast<std::size_t>(region.extent.numel());
  piece_.resize(elements * dtype_size(region.dtype));
  ChecksummedFile& from = file(region.stored->file);
  std::byte* to = piece_.data();
  each_run(region, [&](std::uint64_t begin, std::uint64_t bytes) {
    from.read(begin, to, bytes);
    to += bytes;
  });
  // Any byte but 0 is true: a bool of another byte would not be one.
  const DType dtype = region.dtype == DType::kBool ? DType::kU8 : region.dtype;
  copy_(out, Tensor::from_host(piece_.data(), elements, dtype, region.extent, out.device()));
}

// The names of tensors with elements among some bytes of a file.
std::string StoredCheckpoint::tensors_in(std::size_t number, std::uint64_t begin,
                                         std::uint64_t end) const {
  std::string names;
  for (const StoredTensor& tensor : index_.tensors) {
    const std::uint64_t size = dtype_size(tensor.dtype);
    const bool is_in =
        std::any_of(tensor.boxes.begin(), tensor.boxes.end(), [&](const StoredBox& stored) {
          const auto bytes = static_cast<std::uint64_t>(stored.box.extent.numel()) * size;
          return stored.file == number && stored.begin < end && stored.begin + bytes > begin;
        });
    if (is_in) names += (names.empty() ? "" : ", ") + tensor.name;
  }
  return names.empty() ? "no tensor" : names;
}

std::vector<std::string> StoredCheckpoint::damage() {
  std::vector<std::string> found;
  for (std::size_t number = 0; number < index_.files.size(); ++number) {
    const std::uint64_t bytes = index_.files[number].bytes;
    for (std::uint64_t begin = 0; begin < bytes; begin += kChecksumChunk) {
      const std::uint64_t end = std::min(bytes, begin + kChecksumChunk);
      try {
        file(number).check(begin, end - begin);
      } catch (const CheckpointError& error) {
        const std::string_view text = error.what();
        found.push_back(fmt::format("{} (tensors: {})", text.substr(error_text(kWhere, {}).size()),
                                    tensors_in(number, begin, end)));
      }
    }
  }
  return found;
}

}  // namespace tessera::checkpoint
