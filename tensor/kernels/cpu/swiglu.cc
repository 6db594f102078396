// Piece by piece with the kernels of the single operations: the intermediate results stay in the
// cache of a thread.

#include "tessera/tensor/kernels/swiglu.h"

#include <algorithm>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/elementwise.h"

namespace tessera {
namespace {

// Elements [begin, begin + count) of a contiguous tensor.
template <class AnyView>
AnyView part_of(const AnyView& whole, std::int64_t begin, std::int64_t count) {
  AnyView part = whole;
  part.data = cpu::advance(whole.data, whole.dtype, begin);
  part.shape = {count};
  part.strides = {1};
  return part;
}

ConstView to_read(const View& x) {
  return {.data = x.data, .dtype = x.dtype, .shape = x.shape, .strides = x.strides};
}

// The operations on one piece; each result is rounded to its dtype.
struct Piece {
  DType compute;
  View room;

  ConstView silu(const ConstView& x) const {
    UnaryKernel::cpu({.x = x, .y = room, .op = UnaryOp::kSilu, .compute = compute}, {});
    return to_read(room);
  }
  void binary(BinaryOp op, const ConstView& a, const ConstView& b, const View& y) const {
    BinaryKernel::cpu({.a = a, .b = b, .y = y, .op = op, .compute = compute}, {});
  }
};

// body(piece, begin, count) for all pieces of tensors like `like`.
template <class Body>
void for_pieces(const ConstView& like, Workspace scratch, const Body& body) {
  const std::int64_t all = like.numel(), pieces = (all + kSwigluPiece - 1) / kSwigluPiece;
  cpu::parallel_buffered_rows<char>(
      pieces, kSwigluPiece, scratch,
      static_cast<std::size_t>(kSwigluPiece) * dtype_size(like.dtype),
      [&](std::int64_t piece, char* buffer) {
        const std::int64_t begin = piece * kSwigluPiece,
                           count = std::min(kSwigluPiece, all - begin);
        const View room{.data = buffer, .dtype = like.dtype, .shape = {count}, .strides = {1}};
        body(Piece{.compute = compute_dtype(like.dtype), .room = room}, begin, count);
      });
}

}  // namespace

void SwigluKernel::cpu(const Args& a, Workspace scratch) {
  for_pieces(a.gate, scratch, [&](const Piece& piece, std::int64_t begin, std::int64_t count) {
    piece.binary(BinaryOp::kMul, piece.silu(part_of(a.gate, begin, count)),
                 part_of(a.up, begin, count), part_of(a.y, begin, count));
  });
}

void SwigluBackwardKernel::cpu(const Args& a, Workspace scratch) {
  for_pieces(a.gate, scratch, [&](const Piece& piece, std::int64_t begin, std::int64_t count) {
    const ConstView dy = part_of(a.dy, begin, count), gate = part_of(a.gate, begin, count);
    if (a.dgate.defined()) {
      piece.binary(BinaryOp::kMul, dy, part_of(a.up, begin, count), piece.room);
      piece.binary(BinaryOp::kSiluBackward, to_read(piece.room), gate,
                   part_of(a.dgate, begin, count));
    }
    if (a.dup.defined())
      piece.binary(BinaryOp::kMul, dy, piece.silu(gate), part_of(a.dup, begin, count));
  });
}

}  // namespace tessera
