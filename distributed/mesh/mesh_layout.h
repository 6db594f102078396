#pragma once

/// Ranks arranged along named axes: which rank stands where. Pure index arithmetic, without groups
/// and without communication.
///
/// The ranks form a table in row-major order, the last axis contiguous. A layout is all of it, or
/// the part that is left when some axes are chosen and the coordinates along the others are held.
/// An axis may join several axes of the table ("dp_cp"). Values copy; equal layouts have equal
/// names, shapes and ranks.

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::distributed {

class MeshLayout {
 public:
  struct Axis {
    std::string name;
    std::vector<int> of;  ///< the table's axes that it joins, outermost first
    bool operator==(const Axis&) const = default;
  };

  /// `shape[i]` ranks along `axes[i]`; `ranks` in row-major order. Throws InvalidArgument for no
  /// axes, names that are empty, stand twice or are not as many as `shape`, sizes below 1, ranks
  /// that stand twice, and a shape of another number of ranks.
  MeshLayout(const std::vector<std::string>& axes, std::vector<int> shape, std::vector<int> ranks);

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<int>& shape() const { return shape_; }
  /// Row-major.
  const std::vector<int>& ranks() const { return ranks_; }
  /// By place. Throws InvalidArgument for an unknown name, listing those there are.
  std::size_t index(const std::string& name) const;
  const Axis& axis(const std::string& name) const { return axes_[index(name)]; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// One for each axis; nothing for a rank that is not here.
  std::optional<std::vector<int>> coordinates(int rank) const;

  /// The part along `axes` that holds `rank`. Throws InvalidArgument for no axes, axes that are not
  /// of this layout, and axes out of the table's order or interleaved.
  MeshLayout part(std::vector<Axis> axes, int rank) const;
  /// All parts along `axes`, ordered by their first ranks' places: every rank is in one of them.
  std::vector<MeshLayout> parts(const std::vector<Axis>& axes) const;
  /// All axes as one.
  Axis joined(std::string name) const;

  bool operator==(const MeshLayout& other) const {
    return names_ == other.names_ && shape_ == other.shape_ && ranks_ == other.ranks_;
  }

 private:
  struct Table {
    std::vector<int> shape;
    std::vector<int> ranks;
  };
  MeshLayout(std::shared_ptr<const Table> table, std::vector<Axis> axes, std::vector<int> origin);
  void check_axes(const std::vector<Axis>& axes) const;
  std::vector<int> table_coordinates(int rank) const;

  std::shared_ptr<const Table> table_;
  std::vector<Axis> axes_;
  std::vector<std::string> names_;
  std::vector<int> shape_;
  std::vector<int> ranks_;
};

/// "0,1,2", and "0,2..30" for many at equal distances.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace tessera::distributed
