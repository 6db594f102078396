#pragma once

/// Text to learn from: a file, a folder, or the default corpus. All of it is held in memory.

#include <string>
#include <vector>

namespace tessera::models::data {

struct Document {
  std::string path;  ///< below the folder it was found in; of a single file, its name
  std::string text;  ///< UTF-8, not empty
};

/// The reStructuredText sources of Python's documentation, of Debian's package python3.11-doc:
/// English prose and code, 11 MB, licence PSF.
inline constexpr const char* kDefaultCorpus = "/usr/share/doc/python3.11/html/_sources";

/// A file, or all regular files below a folder in the order of their paths' bytes. What gzip packed
/// is unpacked; a byte order mark goes, "\r\n" becomes "\n". Of a folder, hidden files and folders,
/// empty files and binary ones (with a zero byte) are left out, and links to folders not followed.
/// Throws DataError naming the file: missing, a pipe or device, unreadable, a damaged gzip file,
/// not UTF-8 (with the position); a single file that is empty or binary; a folder in which no text
/// is left. Where kDefaultCorpus is missing, it says what to install.
std::vector<Document> read_documents(const std::string& path);

}  // namespace tessera::models::data
