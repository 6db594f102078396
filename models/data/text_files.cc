#include "tessera/models/data/text_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tessera/models/data/default_corpus.h"
#include "tessera/models/data/utf8.h"
#include "tessera/models/data/whole_file.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "read_documents";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string read_bytes(const std::string& path) { return read_whole_file(path, {.where = kWhere}); }

bool is_utf16(std::string_view bytes) {
  return bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff");
}

void check_text(std::string_view bytes, const std::string& path) {
  TESSERA_CHECK_AS(DataError, !is_utf16(bytes), kWhere,
                   "{} begins as UTF-16 does; convert it with iconv -f UTF-16 -t UTF-8", path);
  const std::size_t bad = find_invalid_utf8(bytes);
  if (bad == std::string_view::npos) return;
  const auto line = 1 + std::count(bytes.begin(), bytes.begin() + static_cast<long>(bad), '\n');
  throw_error<DataError>(kWhere,
                         "{} is not UTF-8: byte {:#04x} at position {} (line {}) of {}; convert it "
                         "to UTF-8, or leave the file out",
                         path, static_cast<std::uint8_t>(bytes[bad]), bad, line, bytes.size());
}

// Without byte order mark, and with lines ending in "\n".
std::string cleaned(std::string text) {
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::size_t kept = 0;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (!(text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n'))
      text[kept++] = text[at];
  text.resize(kept);
  return text;
}

bool is_binary(std::string_view bytes) {
  return !is_utf16(bytes) && bytes.find('\0') != std::string_view::npos;
}

Document single_file(const std::string& path) {
  std::string bytes = read_bytes(path);
  TESSERA_CHECK_AS(DataError, !is_binary(bytes), kWhere,
                   "{} is no text: it has a zero byte at position {} of {}; name a text file", path,
                   bytes.find('\0'), bytes.size());
  check_text(bytes, path);
  std::string text = cleaned(std::move(bytes));
  TESSERA_CHECK_AS(DataError, !text.empty(), kWhere, "{} is empty; name a file with text", path);
  return {.path = fs::path(path).filename().string(), .text = std::move(text)};
}

// Regular files below a folder, as relative paths, in bytewise order.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  const auto check = [&](const fs::path& place) {
    if (error)
      throw_error<DataError>(kWhere, "{} cannot be read: {}; check its permissions", place.string(),
                             error.message());
  };
  fs::recursive_directory_iterator entry(folder, error);
  check(folder);
  while (entry != fs::recursive_directory_iterator()) {
    const fs::path path = entry->path();
    const bool hidden = path.filename().string().starts_with('.');
    if (hidden) entry.disable_recursion_pending();
    // A dangling link is not a regular file and not an error.
    std::error_code ignored;
    if (!hidden && entry->is_regular_file(ignored))
      files.push_back(path.lexically_relative(folder).generic_string());
    entry.increment(error);
    check(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Document> files_of_folder(const std::string& folder) {
  std::vector<Document> documents;
  for (std::string& file : files_below(folder)) {
    const std::string path = (fs::path(folder) / file).string();
    std::string bytes = read_bytes(path);
    if (is_binary(bytes)) continue;
    check_text(bytes, path);
    std::string text = cleaned(std::move(bytes));
    if (!text.empty()) documents.push_back({.path = std::move(file), .text = std::move(text)});
  }
  TESSERA_CHECK_AS(DataError, !documents.empty(), kWhere,
                   "{} has no text: hidden, empty and binary files are left out; name another "
                   "folder",
                   folder);
  return documents;
}

}  // namespace

std::vector<Document> read_documents(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    throw_error<DataError>(
        kWhere, "{} cannot be read: {}; {}", path, error ? error.message() : "it does not exist",
        is_default_corpus(path) ? how_to_get_default_corpus() : "name a file or folder of text");
  if (!fs::is_directory(status)) return {single_file(path)};
  return files_of_folder(path);
}

}  // namespace tessera::models::data
