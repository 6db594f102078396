#include "tessera/tensor/io/folder_marker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string marker_path(const std::string& folder) {
  return (fs::path(folder) / kMarkerFile).string();
}

std::string first_line(std::string_view kind) { return fmt::format("tessera {}\n", kind); }

}  // namespace

bool is_marked(const std::string& folder, std::string_view kind) {
  const std::string path = marker_path(folder);
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::regular) return false;
  const std::string expected = first_line(kind);
  std::string found(expected.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  return file.good() && found == expected;
}

void mark_folder(const char* where, const std::string& folder, std::string_view kind) {
  if (is_marked(folder, kind)) return;
  const std::string path = marker_path(folder);
  const std::string text =
      first_line(kind) + "Written by tessera, which may replace what it wrote in this folder.\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  TESSERA_CHECK_AS(StateError, file >= 0 || errno != EEXIST, where,
                   "\"{}\" does not mark a {} of tessera; choose another folder", path, kind);
  TESSERA_CHECK_AS(CheckpointError, file >= 0, where, "cannot create \"{}\": {}", path,
                   std::strerror(errno));
  const bool written = ::write(file, text.data(), text.size()) == std::ssize(text);
  const int code = errno;
  ::close(file);
  if (written) return;
  ::unlink(path.c_str());
  throw_error<CheckpointError>(where, "cannot write \"{}\": {}", path, std::strerror(code));
}

void check_owned(const char* where, const std::string& folder, std::string_view kind,
                 const NameTest& is_replaced) {
  const bool marked = is_marked(folder, kind);
  for (const std::string& name : names_in(where, folder)) {
    const std::string path = (fs::path(folder) / name).string();
    if (name != kMarkerFile && !is_replaced(name)) continue;
    TESSERA_CHECK_AS(StateError, marked, where,
                     "\"{}\" is of no {} of tessera, and would be replaced; choose another folder",
                     path, kind);
    const std::string other = irregular_file(path);
    TESSERA_CHECK_AS(StateError, other.empty(), where,
                     "\"{}\" would be replaced, and is {}; choose another folder", path, other);
  }
}

std::vector<std::string> names_in(const char* where, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  const bool missing = error == std::errc::no_such_file_or_directory ||
                       error == std::errc::not_a_directory;  // its creation will report it
  TESSERA_CHECK_AS(CheckpointError, !error || missing, where, "cannot read \"{}\": {}", folder,
                   error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera
