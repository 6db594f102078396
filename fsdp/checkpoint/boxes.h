#pragma once

/// Arithmetic on boxes of a tensor: what a rank wants, and what files have.

#include <optional>
#include <span>
#include <string>

#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/tensor/shape.h"

namespace tessera::checkpoint {

/// The box of all elements.
nn::ShardBox whole_box(const Shape& shape);

/// The elements that both have; nothing if there are none. Boxes of one tensor.
std::optional<nn::ShardBox> intersection(const nn::ShardBox& a, const nn::ShardBox& b);

/// "[2:5, 0:7]".
std::string box_text(const nn::ShardBox& box);

/// What is wrong with boxes that should have every element of a tensor once; empty if nothing is. Every
/// box lies inside the shape, whose number of elements fits 64 bits. Boxes without elements count
/// for nothing.
std::string cover_problem(const Shape& shape, std::span<const nn::ShardBox> boxes);

}  // namespace tessera::checkpoint
