#pragma once

/// Which folders are ours to change: a folder in which Tessera replaces or removes files has a
/// marker, a file ".tessera" whose first line says what kind of folder it is. Nothing else writes
/// that line, so what stands in a folder without it belongs to somebody else.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr const char* kMarkerFile = ".tessera";

/// Chooses names of files of a folder.
using NameTest = std::function<bool(std::string_view name)>;

/// True where the folder has the marker of this kind ("run"). A link is none.
bool is_marked(const std::string& folder, std::string_view kind);

/// Leaves the marker; nothing to do where it is. Throws StateError tagged `where` where another
/// file has its name, CheckpointError where it cannot be written.
void mark_folder(const char* where, const std::string& folder, std::string_view kind);

/// Throws StateError tagged `where`, naming the first file, unless all files of the folder that
/// `is_replaced` chooses may be replaced or removed: there are none, or the folder has the marker
/// and they are regular files. A folder that is missing is free. Changes nothing. Throws
/// CheckpointError for a folder that cannot be read.
void check_owned(const char* where, const std::string& folder, std::string_view kind,
                 const NameTest& is_replaced);

/// The names in a folder, sorted; none where it is missing. Throws CheckpointError tagged `where`
/// where it cannot be read.
std::vector<std::string> names_in(const char* where, const std::string& folder);

}  // namespace tessera
