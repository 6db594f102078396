#pragma once

/// Boxes of a parameter and the rows that hold their elements. For nn and fsdp/checkpoint.

#include <functional>
#include <string>

#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn::detail {

/// For a tensor that holds the boxes' rows, one box after another. Throws InvalidArgument,
/// beginning with `what`, for boxes that lie outside those of `of`, differ in an extent other than
/// their rows, or have another number of dims. A box may not reach over two of `of`. No boxes are
/// no rows.
Shape rows_shape(const ShardSpec& spec, const ShardSpec& of, const std::string& what);

/// Calls `function` with the rows of every box that has elements.
void for_each_box(const Tensor& rows, const ShardSpec& spec,
                  const std::function<void(const Tensor& part, const ShardBox& box)>& function);

/// Fills `rows`, which are the boxes of `spec`, from `source`, which is those of `source_spec`.
void copy_boxes(const Tensor& rows, const ShardSpec& spec, const Tensor& source,
                const ShardSpec& source_spec);

}  // namespace tessera::nn::detail
