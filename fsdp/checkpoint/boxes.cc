#include "tessera/fsdp/checkpoint/boxes.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

namespace tessera::checkpoint {

nn::ShardBox whole_box(const Shape& shape) {
  return {.offset = Shape::filled(shape.ndim(), 0), .extent = shape};
}

std::optional<nn::ShardBox> intersection(const nn::ShardBox& a, const nn::ShardBox& b) {
  nn::ShardBox both = a;
  for (int d = 0; d < a.offset.ndim(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]),
                       end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (begin >= end) return std::nullopt;
    both.offset[d] = begin;
    both.extent[d] = end - begin;
  }
  return both;
}

std::string box_text(const nn::ShardBox& box) {
  std::string text;
  for (int d = 0; d < box.offset.ndim(); ++d)
    text += fmt::format("{}{}:{}", d > 0 ? ", " : "", box.offset[d], box.offset[d] + box.extent[d]);
  return "[" + text + "]";
}

namespace {

// The dim in which boxes begin at the most places; -1 for no dims.
int most_cut_dim(int ndim, const std::vector<nn::ShardBox>& boxes) {
  int best = -1;
  std::size_t most = 0;
  for (int d = 0; d < ndim; ++d) {
    std::set<std::int64_t> places;
    for (const nn::ShardBox& box : boxes) places.insert(box.offset[d]);
    if (best >= 0 && places.size() <= most) continue;
    best = d;
    most = places.size();
  }
  return best;
}

}  // namespace

std::string cover_problem(const Shape& shape, std::span<const nn::ShardBox> boxes) {
  std::vector<nn::ShardBox> sorted;
  std::int64_t elements = 0;
  for (const nn::ShardBox& box : boxes) {
    if (box.extent.numel() == 0) continue;
    sorted.push_back(box);
  }
  const int along = most_cut_dim(shape.ndim(), sorted);
  const auto begin_of = [along](const nn::ShardBox& box) {
    return along < 0 ? 0 : box.offset[along];
  };
  const auto end_of = [along](const nn::ShardBox& box) {
    return along < 0 ? 1 : box.offset[along] + box.extent[along];
  };
  std::sort(sorted.begin(), sorted.end(), [&](const nn::ShardBox& a, const nn::ShardBox& b) {
    return begin_of(a) < begin_of(b);
  });
  // Only boxes that share entries of this dim can overlap: those that begin before this one ends.
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = i + 1; j < sorted.size() && begin_of(sorted[j]) < end_of(sorted[i]); ++j) {
      if (intersection(sorted[i], sorted[j]))
        return fmt::format("its boxes {} and {} overlap", box_text(sorted[i]), box_text(sorted[j]));
    }
    elements += sorted[i].extent.numel();  // disjoint so far: no more than the tensor has
  }
  if (elements == shape.numel()) return {};
  return fmt::format("its boxes have {} of its {} elements", elements, shape.numel());
}

}  // namespace tessera::checkpoint
