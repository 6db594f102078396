#include "tessera/tensor/kernels/sgd.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

using Segment = SgdKernel::Segment;

// A part of one segment: what a thread takes.
struct Piece {
  const Segment* segment;
  std::int64_t begin;
  std::int64_t end;
};

std::int64_t length(const Segment& segment) {
  std::int64_t n = 1;
  for (std::int64_t extent : segment.parameter.shape) n *= extent;
  return n;
}

std::vector<Piece> cut(const std::vector<Segment>& segments) {
  std::vector<Piece> pieces;
  for (const Segment& segment : segments) {
    const std::int64_t n = length(segment);
    for (std::int64_t begin = 0; begin < n; begin += cpu::kPiece) {
      pieces.push_back({&segment, begin, std::min(n, begin + cpu::kPiece)});
    }
  }
  return pieces;
}

template <class T>
void plain_step(const Segment& s, std::int64_t begin, std::int64_t end) {
  T* __restrict p = s.parameter.as<T>();
  const T* __restrict gradient = s.gradient.as<T>();
  const T lr = static_cast<T>(s.lr), decay = static_cast<T>(s.weight_decay);
  for (std::int64_t i = begin; i < end; ++i) p[i] -= lr * (gradient[i] + decay * p[i]);
}

template <class T>
void momentum_step(const Segment& s, std::int64_t begin, std::int64_t end) {
  T* __restrict p = s.parameter.as<T>();
  const T* __restrict gradient = s.gradient.as<T>();
  T* __restrict momentum = s.momentum.as<T>();
  const T lr = static_cast<T>(s.lr), decay = static_cast<T>(s.weight_decay);
  const T factor = static_cast<T>(s.momentum_factor), share = static_cast<T>(1 - s.dampening);
  const bool nesterov = s.nesterov, first = s.first_step;
  for (std::int64_t i = begin; i < end; ++i) {
    const T g = gradient[i] + decay * p[i];
    const T m = first ? g : factor * momentum[i] + share * g;
    momentum[i] = m;
    p[i] -= lr * (nesterov ? g + factor * m : m);
  }
}

}  // namespace

void SgdKernel::cpu(const Args& a, Workspace) {
  const std::vector<Piece> pieces = cut(a.segments);
  const auto count = static_cast<std::int64_t>(pieces.size());
#pragma omp parallel for schedule(dynamic) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    with_floating_type(piece.segment->parameter.dtype, [&]<class T>() {
      if (piece.segment->momentum.defined()) {
        momentum_step<T>(*piece.segment, piece.begin, piece.end);
      } else {
        plain_step<T>(*piece.segment, piece.begin, piece.end);
      }
    });
  }
}

}  // namespace tessera
