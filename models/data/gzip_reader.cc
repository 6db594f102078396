#include "tessera/models/data/gzip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "gzip_reader";
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr int kGzipFormat = 16 + MAX_WBITS;

}  // namespace

// zlib's gzread ignores a truncated trailer once all values have been read; inflate reports exactly
// when the stream has ended.
struct GzipReader::Impl {
  explicit Impl(std::string name) : path(std::move(name)), file(std::fopen(path.c_str(), "rb")) {
    if (file == nullptr)
      throw_error<DataError>(kWhere, "{} cannot be opened: {}; check its permissions", path,
                             std::strerror(errno));
  }
  ~Impl() {
    if (compressed) inflateEnd(&stream);
    if (file != nullptr) std::fclose(file);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin();
  bool fill();
  std::size_t read_plain(std::uint8_t* out, std::size_t bytes);
  std::size_t inflate_some(std::uint8_t* out, std::size_t bytes);
  void check(int code);

  std::string path;
  std::FILE* file;
  z_stream stream{};
  bool compressed = false;
  bool in_member = false;  // between the first and the last byte of a compressed stream
  std::array<std::uint8_t, kPiece> input;
};

// Inspects the first bytes.
void GzipReader::Impl::begin() {
  fill();
  if (stream.avail_in < 2 || input[0] != 0x1f || input[1] != 0x8b) return;
  TESSERA_CHECK_AS(DataError, inflateInit2(&stream, kGzipFormat) == Z_OK, kWhere,
                   "{} cannot be decompressed: not enough memory", path);
  compressed = in_member = true;
}

// Reads more input if the buffer is empty; returns false at the end of the file.
bool GzipReader::Impl::fill() {
  if (stream.avail_in > 0) return true;
  const std::size_t have = std::fread(input.data(), 1, input.size(), file);
  if (have == 0 && std::ferror(file) != 0)
    throw_error<DataError>(kWhere, "{} cannot be read: {}; get the file again", path,
                           std::strerror(errno));
  stream.next_in = input.data();
  stream.avail_in = static_cast<uInt>(have);
  return have > 0;
}

std::size_t GzipReader::Impl::read_plain(std::uint8_t* out, std::size_t bytes) {
  std::size_t have = 0;
  while (have < bytes && fill()) {
    const std::size_t piece = std::min<std::size_t>(bytes - have, stream.avail_in);
    std::memcpy(out + have, stream.next_in, piece);
    stream.next_in += piece;
    stream.avail_in -= static_cast<uInt>(piece);
    have += piece;
  }
  return have;
}

std::size_t GzipReader::Impl::inflate_some(std::uint8_t* out, std::size_t bytes) {
  const std::size_t most = std::min<std::size_t>(bytes, std::numeric_limits<uInt>::max());
  stream.next_out = out;
  stream.avail_out = static_cast<uInt>(most);
  while (stream.avail_out > 0 && fill()) {
    if (!in_member) {  // a file may consist of several streams
      check(inflateReset(&stream));
      in_member = true;
    }
    const int code = inflate(&stream, Z_NO_FLUSH);
    check(code);
    if (code == Z_STREAM_END) in_member = false;
  }
  return most - stream.avail_out;
}

void GzipReader::Impl::check(int code) {
  if (code == Z_OK || code == Z_STREAM_END) return;
  throw_error<DataError>(kWhere, "{} cannot be decompressed: {}; get the file again", path,
                         stream.msg != nullptr ? stream.msg : zError(code));
}

GzipReader::GzipReader(std::string path) : impl_(std::make_unique<Impl>(std::move(path))) {
  impl_->begin();
}
GzipReader::~GzipReader() = default;
GzipReader::GzipReader(GzipReader&&) noexcept = default;
GzipReader& GzipReader::operator=(GzipReader&&) noexcept = default;

std::size_t GzipReader::read(std::uint8_t* out, std::size_t bytes) {
  if (!impl_->compressed) return impl_->read_plain(out, bytes);
  std::size_t have = 0;
  while (have < bytes) {
    const std::size_t got = impl_->inflate_some(out + have, bytes - have);
    if (got == 0) break;
    have += got;
  }
  return have;
}

bool GzipReader::ended_early() const { return impl_->in_member; }

}  // namespace tessera::models::data
