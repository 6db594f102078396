#include "tessera/nn/mesh/shard_boxes.h"

#include <algorithm>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::detail {
namespace {

constexpr const char* kWhere = "nn.Parameter";

bool lies_in(const ShardBox& box, const ShardBox& in) {
  bool fits = box.offset.ndim() == in.offset.ndim() && box.extent.ndim() == in.extent.ndim();
  for (int d = 0; fits && d < in.extent.ndim(); ++d) {
    fits = box.offset[d] >= in.offset[d] && box.extent[d] >= 0 &&
           box.offset[d] + box.extent[d] <= in.offset[d] + in.extent[d];
  }
  return fits;
}

std::string boxes_text(const ShardSpec& spec) {
  if (spec.boxes.size() == 1 && spec.boxes.front().extent == spec.global_shape)
    return spec.global_shape.str();
  std::string out;
  for (const ShardBox& box : spec.boxes) {
    out += fmt::format("{}{} at {}", out.empty() ? "" : ", ", box.extent.str(), box.offset.str());
  }
  return out;
}

// The part of `source` that is `box`, which lies in one of its boxes.
Tensor part_of(const Tensor& source, const ShardSpec& spec, const ShardBox& box) {
  std::int64_t row = 0;
  for (const ShardBox& in : spec.boxes) {
    if (!lies_in(box, in)) {
      row += in.extent[0];
      continue;
    }
    Tensor part = source;
    for (int d = 0; d < source.ndim(); ++d) {
      part = part.narrow(d, box.offset[d] - in.offset[d] + (d == 0 ? row : 0), box.extent[d]);
    }
    return part;
  }
  throw_error<InvalidArgument>(kWhere, "box {} at {} is not in {}", box.extent.str(),
                               box.offset.str(), boxes_text(spec));
}

}  // namespace

Shape rows_shape(const ShardSpec& spec, const ShardSpec& of, const std::string& what) {
  const Shape shape = (spec.boxes.empty() ? of : spec).boxes.front().extent;
  std::int64_t rows = 0;
  for (const ShardBox& box : spec.boxes) {
    const bool inside = std::any_of(of.boxes.begin(), of.boxes.end(),
                                    [&box](const ShardBox& in) { return lies_in(box, in); });
    TESSERA_CHECK(inside && box.extent.with(0, 0) == shape.with(0, 0), kWhere,
                  "{}: box {} at {} is not a part of {} as wide as the others", what,
                  box.extent.str(), box.offset.str(), boxes_text(of));
    rows += box.extent[0];
  }
  return shape.with(0, rows);
}

void for_each_box(const Tensor& rows, const ShardSpec& spec,
                  const std::function<void(const Tensor& part, const ShardBox& box)>& function) {
  std::int64_t row = 0;
  for (const ShardBox& box : spec.boxes) {
    Tensor part = rows;
    if (rows.ndim() > 0) {
      part = rows.narrow(0, row, box.extent[0]);
      row += box.extent[0];
    }
    if (part.numel() > 0) function(part, box);
  }
}

void copy_boxes(const Tensor& rows, const ShardSpec& spec, const Tensor& source,
                const ShardSpec& source_spec) {
  for_each_box(rows, spec, [&](const Tensor& part, const ShardBox& box) {
    copy_(part, part_of(source, source_spec, box));
  });
}

}  // namespace tessera::nn::detail
