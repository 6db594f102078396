#include "tessera/fsdp/int8_extension.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera::fsdp {
namespace {

constexpr double kLargestCode = 127;
constexpr double kZeroCode = 128;  // u8 has no negative numbers

void check_block(std::int64_t block) {
  TESSERA_CHECK(block >= 1, "fsdp.int8_gather", "block is {}; give at least 1 element", block);
}

std::int64_t row_elements(const Tensor& rows) {
  std::int64_t elements = 1;
  for (int dim = 1; dim < rows.ndim(); ++dim) elements *= rows.dim(dim);
  return elements;
}

/// A part of every row: the full blocks, or the shorter block at the end. The functions below view
/// it as [rows, blocks, elements of a block] and [rows, blocks, 1].
struct Part {
  std::int64_t first = 0;   ///< first element in the row
  std::int64_t length = 0;  ///< elements of a block
  std::int64_t blocks = 0;
};
std::vector<Part> parts_of(std::int64_t row, std::int64_t block) {
  std::vector<Part> parts;
  const std::int64_t full = row / block;
  if (full > 0) parts.push_back({.first = 0, .length = block, .blocks = full});
  if (row % block > 0) parts.push_back({.first = full * block, .length = row % block, .blocks = 1});
  return parts;
}
/// Views [rows, elements] as [rows, blocks, elements of a block].
Tensor elements_of(const Tensor& x, const Part& part) {
  return x.narrow(1, part.first, part.blocks * part.length)
      .unflatten(1, {part.blocks, part.length});
}
/// Views [rows, blocks of a row] as [rows, blocks, 1].
Tensor scales_of(const Tensor& scales, const Part& part, std::int64_t block) {
  return scales.narrow(1, part.first / block, part.blocks).unsqueeze(2);
}

}  // namespace

ExtensionOf int8_gather(const Int8Options& options) {
  check_block(options.block);
  return [options](const nn::Parameter& parameter) -> std::shared_ptr<GatherExtension> {
    const Shape& shape = parameter.shape();
    if (shape[0] == 0 || shape.numel() / shape[0] < options.smallest_row) return nullptr;
    return std::make_shared<Int8Extension>(options.block);
  };
}

Int8Extension::Int8Extension(std::int64_t block) : block_(block) { check_block(block); }

std::vector<Tensor> Int8Extension::pack(const GatherShard& shard) {
  const std::int64_t count = shard.rows.dim(0), row = row_elements(shard.rows);
  const Device device = shard.rows.device();
  const Tensor codes = Tensor::empty({count, row}, {.dtype = DType::kU8, .device = device});
  const Tensor scales = Tensor::empty({count, (row + block_ - 1) / block_}, {.device = device});
  if (codes.numel() == 0) return {codes, scales};
  const Tensor all = reshape(shard.rows, {count, row});
  for (const Part& part : parts_of(row, block_)) {
    const Tensor x = cast(elements_of(all, part), DType::kF32);
    const Tensor scale = div(amax(abs(x), {2}, /*keep_dims=*/true), kLargestCode);
    copy_(scales_of(scales, part, block_), scale);
    const Tensor divisor = where(eq(scale, 0), 1, scale);
    const Tensor code = clamp(round(div(x, divisor)), -kLargestCode, kLargestCode);
    copy_(elements_of(codes, part), add(code, kZeroCode));
  }
  return {codes, scales};
}

void Int8Extension::unpack(const GatherShard& /*shard*/, std::span<const Tensor> gathered,
                           const Tensor& rows) {
  if (rows.numel() == 0) return;
  const std::int64_t count = rows.dim(0), row = row_elements(rows);
  const Tensor codes = gathered[0].view({count, row});
  const Tensor scales = gathered[1].view({count, -1});
  const Tensor out = rows.view({count, row});
  for (const Part& part : parts_of(row, block_)) {
    const Tensor code = sub(cast(elements_of(codes, part), DType::kF32), kZeroCode);
    copy_(elements_of(out, part), mul(code, scales_of(scales, part, block_)));
  }
}

}  // namespace tessera::fsdp
