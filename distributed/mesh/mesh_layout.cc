#include "tessera/distributed/mesh/mesh_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "device_mesh";

std::vector<int> unravel(int place, const std::vector<int>& shape) {
  std::vector<int> out(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    out[i] = place % shape[i];
    place /= shape[i];
  }
  return out;
}

int ravel(const std::vector<int>& coordinates, const std::vector<int>& shape) {
  int place = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) place = place * shape[i] + coordinates[i];
  return place;
}

int product(const std::vector<int>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<>());
}

int place_of(int rank, const std::vector<int>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

std::vector<MeshLayout::Axis> plain_axes(const std::vector<std::string>& names) {
  std::vector<MeshLayout::Axis> out;
  for (const std::string& name : names) out.push_back({name, {static_cast<int>(out.size())}});
  return out;
}

void check_names(const std::vector<std::string>& names, const std::vector<int>& shape) {
  TESSERA_CHECK(!names.empty(), kWhere,
                "a mesh needs at least one axis; name it, as in {{\"dp\"}}");
  TESSERA_CHECK(names.size() == shape.size(), kWhere,
                "{} axis names ({}) for {} sizes ({}): give one for each", names.size(),
                fmt::join(names, ", "), shape.size(), fmt::join(shape, ", "));
  std::set<std::string> seen;
  for (const std::string& name : names) {
    TESSERA_CHECK(!name.empty(), kWhere,
                  "an axis needs a name that is not empty; the names are: \"{}\"",
                  fmt::join(names, "\", \""));
    TESSERA_CHECK(seen.insert(name).second, kWhere,
                  "axis name \"{}\" stands twice in: {}; give each its own", name,
                  fmt::join(names, ", "));
  }
}

void check_ranks(const std::vector<int>& shape, const std::vector<int>& ranks) {
  for (const int size : shape)
    TESSERA_CHECK(size >= 1, kWhere, "sizes are at least 1, got [{}]", fmt::join(shape, ", "));
  const auto count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  TESSERA_CHECK(count == static_cast<std::int64_t>(ranks.size()), kWhere,
                "a mesh of shape [{}] has {} ranks, but there are {}; the sizes' product must be "
                "their number",
                fmt::join(shape, ", "), count, ranks.size());
  const std::set<int> seen(ranks.begin(), ranks.end());
  TESSERA_CHECK(seen.size() == ranks.size(), kWhere, "a rank stands twice among {}",
                fmt::join(ranks, ", "));
}

}  // namespace

MeshLayout::MeshLayout(const std::vector<std::string>& axes, std::vector<int> shape,
                       std::vector<int> ranks)
    : axes_(plain_axes(axes)), names_(axes), shape_(std::move(shape)), ranks_(std::move(ranks)) {
  check_names(names_, shape_);
  check_ranks(shape_, ranks_);
  table_ = std::make_shared<Table>(Table{shape_, ranks_});
}

// `origin`: coordinates in the table of the part's first rank.
MeshLayout::MeshLayout(std::shared_ptr<const Table> table, std::vector<Axis> axes,
                       std::vector<int> origin)
    : table_(std::move(table)), axes_(std::move(axes)) {
  std::vector<int> of;
  std::vector<int> sizes;
  for (const Axis& axis : axes_) {
    int size = 1;
    for (const int i : axis.of) {
      of.push_back(i);
      sizes.push_back(table_->shape[static_cast<std::size_t>(i)]);
      size *= sizes.back();
    }
    names_.push_back(axis.name);
    shape_.push_back(size);
  }
  for (int place = 0; place < product(sizes); ++place) {
    const std::vector<int> along = unravel(place, sizes);
    for (std::size_t i = 0; i < of.size(); ++i) origin[static_cast<std::size_t>(of[i])] = along[i];
    ranks_.push_back(table_->ranks[static_cast<std::size_t>(ravel(origin, table_->shape))]);
  }
}

std::size_t MeshLayout::index(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  TESSERA_CHECK(found != names_.end(), kWhere, "no axis \"{}\"; the mesh has: {}", name,
                fmt::join(names_, ", "));
  return static_cast<std::size_t>(found - names_.begin());
}

std::optional<std::vector<int>> MeshLayout::coordinates(int rank) const {
  const int place = place_of(rank, ranks_);
  if (place < 0) return std::nullopt;
  return unravel(place, shape_);
}

std::vector<int> MeshLayout::table_coordinates(int rank) const {
  const int place = place_of(rank, ranks_) < 0 ? -1 : place_of(rank, table_->ranks);
  TESSERA_CHECK(place >= 0, kWhere, "rank {} is not in the mesh, which has {}", rank,
                ranks_text(ranks_));
  return unravel(place, table_->shape);
}

void MeshLayout::check_axes(const std::vector<Axis>& axes) const {
  TESSERA_CHECK(!axes.empty(), kWhere, "a sub-mesh needs at least one axis; the mesh has: {}",
                fmt::join(names_, ", "));
  std::vector<int> own;
  for (const Axis& axis : axes_) own.insert(own.end(), axis.of.begin(), axis.of.end());
  std::vector<std::string> asked;
  int last = -1;
  bool ascending = true;
  for (const Axis& axis : axes) {
    asked.push_back(axis.name);
    for (const int i : axis.of) {
      TESSERA_CHECK(std::find(own.begin(), own.end(), i) != own.end(), kWhere,
                    "axis \"{}\" is not of this mesh, which has: {}", axis.name,
                    fmt::join(names_, ", "));
      ascending = ascending && i > last;
      last = i;
    }
  }
  TESSERA_CHECK(ascending, kWhere,
                "axes {} are not in the mesh's order, or overlap; the order is: {}; name them in "
                "it, each once",
                fmt::join(asked, ", "), fmt::join(names_, ", "));
}

MeshLayout MeshLayout::part(std::vector<Axis> axes, int rank) const {
  check_axes(axes);
  return {table_, std::move(axes), table_coordinates(rank)};
}

std::vector<MeshLayout> MeshLayout::parts(const std::vector<Axis>& axes) const {
  std::vector<MeshLayout> out;
  std::set<int> seen;
  for (const int rank : ranks_) {
    if (seen.count(rank) != 0) continue;
    out.push_back(part(axes, rank));
    seen.insert(out.back().ranks().begin(), out.back().ranks().end());
  }
  return out;
}

MeshLayout::Axis MeshLayout::joined(std::string name) const {
  Axis out{.name = std::move(name), .of = {}};
  for (const Axis& axis : axes_) out.of.insert(out.of.end(), axis.of.begin(), axis.of.end());
  return out;
}

std::string ranks_text(const std::vector<int>& ranks) {
  bool even = ranks.size() > 4;
  for (std::size_t i = 2; even && i < ranks.size(); ++i)
    even = ranks[i] - ranks[i - 1] == ranks[1] - ranks[0];
  if (even) return fmt::format("{},{}..{}", ranks[0], ranks[1], ranks.back());
  return fmt::format("{}", fmt::join(ranks, ","));
}

}  // namespace tessera::distributed
