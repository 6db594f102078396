#include "tessera/tensor/io/chunk_checksums.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera {

std::uint64_t checksum_of(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

struct ChecksumSink::State {
  State() { XXH3_64bits_reset(state); }
  ~State() { XXH3_freeState(state); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* const state = XXH3_createState();
};

ChecksumSink::ChecksumSink(ByteSink& next) : next_(next), state_(std::make_unique<State>()) {}
ChecksumSink::~ChecksumSink() = default;

void ChecksumSink::write(const void* data, std::size_t bytes) {
  next_.write(data, bytes);
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const std::size_t rest = kChecksumChunk - bytes_ % kChecksumChunk,
                      taken = std::min<std::size_t>(rest, bytes);
    XXH3_64bits_update(state_->state, from, taken);
    from += taken;
    bytes -= taken;
    bytes_ += taken;
    if (taken < rest) continue;
    checksums_.push_back(XXH3_64bits_digest(state_->state));
    XXH3_64bits_reset(state_->state);
  }
}

std::vector<std::uint64_t> ChecksumSink::finish() {
  if (bytes_ % kChecksumChunk != 0) checksums_.push_back(XXH3_64bits_digest(state_->state));
  return std::move(checksums_);
}

ChecksummedFile::ChecksummedFile(const char* where, std::string path, std::uint64_t bytes,
                                 std::vector<std::uint64_t> checksums)
    : where_(where), file_(where, std::move(path)), checksums_(std::move(checksums)) {
  TESSERA_CHECK_AS(CheckpointError, file_.size() == bytes, where_,
                   "\"{}\" has {} bytes; {} were written", file_.path(), file_.size(), bytes);
}

void ChecksummedFile::load(std::uint64_t chunk) {
  if (chunk == loaded_) return;
  const std::uint64_t begin = chunk * kChecksumChunk,
                      size = std::min(kChecksumChunk, file_.size() - begin);
  buffer_.resize(size);
  loaded_ = ~std::uint64_t{0};
  file_.read(begin, buffer_.data(), size);
  const std::uint64_t found = checksum_of(buffer_.data(), size);
  TESSERA_CHECK_AS(CheckpointError, found == checksums_[chunk], where_,
                   "\"{}\" is damaged: bytes [{}, {}) have the checksum {:016x}, and {:016x} was "
                   "written",
                   file_.path(), begin, begin + size, found, checksums_[chunk]);
  loaded_ = chunk;
}

void ChecksummedFile::read(std::uint64_t offset, void* out, std::uint64_t bytes) {
  auto* to = static_cast<std::byte*>(out);
  while (bytes > 0) {
    load(offset / kChecksumChunk);
    const std::uint64_t at = offset % kChecksumChunk,
                        taken = std::min<std::uint64_t>(bytes, buffer_.size() - at);
    std::memcpy(to, buffer_.data() + at, taken);
    to += taken;
    offset += taken;
    bytes -= taken;
  }
}

void ChecksummedFile::check(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t last = (offset + bytes - 1) / kChecksumChunk;
  for (std::uint64_t chunk = offset / kChecksumChunk; chunk <= last; ++chunk) load(chunk);
}

}  // namespace tessera
