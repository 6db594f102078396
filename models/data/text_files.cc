#include "tessera/models/data/text_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "tessera/models/data/gzip_reader.h"
#include "tessera/models/data/utf8.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr std::size_t kReadPiece = std::size_t{1} << 18;

}  // namespace

std::string read_whole_file(const std::string& path, const WholeFileOptions& options) {
  const std::string_view where = options.where;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw_error<DataError>(where, "{} cannot be read: {}; {}", path,
                           error ? error.message() : "it does not exist", options.if_missing);
  TESSERA_CHECK_AS(DataError, !std::filesystem::is_directory(status), where,
                   "{} is a folder; name a file", path);
  // A pipe gives its bytes only once, but every rank reads; some devices never end.
  TESSERA_CHECK_AS(DataError, std::filesystem::is_regular_file(status), where,
                   "{} is a pipe or a device; copy what it gives to a file, and name that", path);
  GzipReader file(path);
  std::string bytes;
  for (std::size_t got = kReadPiece, have = 0; got == kReadPiece;) {
    bytes.resize(have + kReadPiece);
    got = file.read(reinterpret_cast<std::uint8_t*>(bytes.data()) + have, kReadPiece);
    have += got;
    bytes.resize(have);
    TESSERA_CHECK_AS(DataError, static_cast<std::int64_t>(have) <= options.most, where,
                     "{} has more than the {} bytes that such a file may have; name another", path,
                     options.most);
  }
  TESSERA_CHECK_AS(DataError, !file.ended_early(), where,
                   "{} is truncated: its compressed data break off after {} bytes; get the file "
                   "again",
                   path, bytes.size());
  return bytes;
}

std::size_t line_end(std::string_view text, std::size_t begin) {
  const std::size_t end = text.find('\n', begin);
  return end == std::string_view::npos ? text.size()
                                       : std::min(text.find_first_not_of('\n', end), text.size());
}

std::size_t lines_end(std::string_view text, std::size_t begin, std::size_t bytes) {
  if (text.size() - begin < bytes) return text.size();
  return line_end(text, begin + bytes - 1);
}

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

namespace {

struct Version {
  const char* name;  // of the Debian package
  std::int64_t files;
  std::int64_t bytes;
  std::uint64_t hash;  // XXH64 of the concatenated texts
  bool operator==(const Version& other) const {
    return files == other.files && bytes == other.bytes && hash == other.hash;
  }
};

constexpr std::array<Version, 2> kKnown = {{
    {"3.11.2-6+deb12u8", 497, 11'046'319, 0x4957473efc4236f6},
    {"3.11.2-6+deb12u9", 497, 11'048'275, 0x16ff642e733a4c4e},
}};

Version version_of(std::span<const Document> documents) {
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(),
                                                                         &XXH64_freeState);
  XXH64_reset(state.get(), 0);
  Version version{.name = "", .files = 0, .bytes = 0, .hash = 0};
  for (const Document& document : documents) {
    XXH64_update(state.get(), document.text.data(), document.text.size());
    ++version.files;
    version.bytes += static_cast<std::int64_t>(document.text.size());
  }
  version.hash = XXH64_digest(state.get());
  return version;
}

std::string describe(const Version& version) {
  return fmt::format("{} files of {} bytes with the hash {:016x}", version.files, version.bytes,
                     version.hash);
}

}  // namespace

bool is_default_corpus(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code missing;
  return (fs::path(path) / "").lexically_normal() == (fs::path(kDefaultCorpus) / "") ||
         fs::equivalent(path, kDefaultCorpus, missing);
}

CorpusVersion default_corpus_version(std::span<const Document> documents) {
  const Version found = version_of(documents);
  const auto version = std::find(kKnown.begin(), kKnown.end(), found);
  if (version != kKnown.end()) return {.package = version->name, .note = ""};
  std::string known;
  for (const Version& one : kKnown)
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", or ", describe(one), one.name);
  return {.package = "",
          .note = fmt::format("the text has {}, the known versions of python3.11-doc have {}: "
                              "losses compare only roughly with the stated ones",
                              describe(found), known)};
}

std::string how_to_get_default_corpus() {
  return "the default corpus is of Debian's package python3.11-doc: install it. Where it is "
         "installed, dpkg was told to leave out /usr/share/doc, as in small container images: "
         "remove that path-exclude from /etc/dpkg/dpkg.cfg.d and run apt-get install --reinstall "
         "python3.11-doc. Any other file or folder of text will do too";
}

}  // namespace tessera::models::data
