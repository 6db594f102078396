#pragma once

/// Markers of the folders that Tessera may change. A folder in which Tessera replaces or removes
/// files has a marker: a file ".tessera" whose first line is the kind of the folder. Only Tessera
/// writes that line, so files in a folder without it belong to the user.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr const char* kMarkerFile = ".tessera";

/// Selects files of a folder by name.
using NameTest = std::function<bool(std::string_view name)>;

/// True if the folder has the marker of this kind ("run"). A symbolic link does not count.
bool is_marked(const std::string& folder, std::string_view kind);

/// Writes the marker unless it is there. Throws StateError tagged `where` if another file has its
/// name, CheckpointError if it cannot be written.
void mark_folder(const char* where, const std::string& folder, std::string_view kind);

/// Checks that all files of the folder that `is_replaced` selects may be replaced or removed: there
/// are none, or the folder has the marker and they are regular files. Otherwise throws StateError
/// tagged `where` that names the first file. A missing folder passes. Changes nothing. Throws
/// CheckpointError for a folder that cannot be read.
void check_owned(const char* where, const std::string& folder, std::string_view kind,
                 const NameTest& is_replaced);

/// The names in a folder, sorted; empty if it is missing. Throws CheckpointError tagged `where` if
/// it cannot be read.
std::vector<std::string> names_in(const char* where, const std::string& folder);

}  // namespace tessera
