#pragma once

/// Many small copies on a GPU in one launch: how members of a collective get into one buffer and
/// out of it. Private to this folder.

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st;  // of the CUDA runtime

namespace tessera::distributed {

/// `rows` runs of `row_bytes`, each so many bytes after the one before. Neither overlaps.
struct CopySegment {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 1;
  std::int64_t from_pitch = 0;
  std::int64_t to_pitch = 0;
};

/// The widest unit (16, 8, 4, 2 or 1 bytes) that every run of the segment consists of and is
/// aligned for.
int copy_unit(const CopySegment& segment);

/// Issued on `stream` of the current GPU, 64 segments a launch; empty ones are left out.
void copy_segments(CUstream_st* stream, std::span<const CopySegment> segments);

}  // namespace tessera::distributed
