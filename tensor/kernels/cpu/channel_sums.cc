// The summing kernels of channel_norm.h.

#include <algorithm>
#include <array>
#include <cstdint>

#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlock = ChannelShape::kBlock;
// Channels that are summed together if each sample has one element of a channel.
constexpr std::int64_t kColumns = 64;

// Two sums of a block of one channel.
struct Pair {
  double first, second;
};

// Elements of one dtype at any position, as plain values.
template <class C>
struct Elements {
  const void* data;
  DType dtype;

  const C* read(std::int64_t at, std::int64_t n, C* buffer) const {
    const void* from = cpu::advance(data, dtype, at);
    if (dtype == dtype_of<C>) return static_cast<const C*>(from);
    cpu::load_run(dtype, from, 1, n, buffer);
    return buffer;
  }
  // Elements [begin, end) of a channel, in the order of samples.
  const C* read_channel(const ChannelShape& s, std::int64_t channel, std::int64_t begin,
                        std::int64_t end, C* buffer) const {
    const auto at = [&](std::int64_t i) {
      return (i / s.spatial * s.channels + channel) * s.spatial + i % s.spatial;
    };
    if (begin / s.spatial == (end - 1) / s.spatial) return read(at(begin), end - begin, buffer);
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t run = std::min(end - i, s.spatial - i % s.spatial);
      cpu::load_run(dtype, cpu::advance(data, dtype, at(i)), 1, run, buffer + (i - begin));
      i += run;
    }
    return buffer;
  }
};

template <class C>
Elements<C> elements(const ConstView& view) {
  return {view.data, view.dtype};
}

// The mean of n numbers and the squared differences from it, from sums of x - guess.
Pair mean_and_m2(double guess, double rest, double squares, double n) {
  return {guess + rest / n, squares - rest * rest / n};
}

// The sums for the statistics: first a guess of the mean, then the differences from it, so that
// nothing cancels if the mean is large.
template <class C>
struct Moments {
  Elements<C> x;

  Pair block(const ChannelShape& s, std::int64_t channel, std::int64_t begin,
             std::int64_t end) const {
    C buffer[kBlock];
    const C* v = x.read_channel(s, channel, begin, end, buffer);
    const std::int64_t n = end - begin;
    const auto count = static_cast<double>(n);
    const auto guess =
        static_cast<C>(cpu::lane_sum<C>(n, [=](std::int64_t i) { return v[i]; }) / count);
    const auto [rest, squares] = cpu::lane_sums<C>(n, [=](std::int64_t i) {
      const C d = v[i] - guess;
      return std::array<C, 2>{d, scalar::mul(d, d)};
    });
    return mean_and_m2(guess, rest, squares, count);
  }

  // The same for `width` channels from `first`, with one element of each in a sample.
  void columns(const ChannelShape& s, std::int64_t first, std::int64_t width, std::int64_t begin,
               std::int64_t end, Pair* out) const {
    C buffer[kColumns], guess[kColumns] = {}, rest[kColumns] = {}, squares[kColumns] = {};
    const auto count = static_cast<double>(end - begin);
    for (std::int64_t row = begin; row < end; ++row) {
      const C* v = x.read(row * s.channels + first, width, buffer);
      for (std::int64_t c = 0; c < width; ++c) guess[c] += v[c];
    }
    for (std::int64_t c = 0; c < width; ++c) guess[c] = static_cast<C>(guess[c] / count);
    for (std::int64_t row = begin; row < end; ++row) {
      const C* v = x.read(row * s.channels + first, width, buffer);
      for (std::int64_t c = 0; c < width; ++c) {
        const C d = v[c] - guess[c];
        rest[c] += d;
        squares[c] = scalar::fma(d, d, squares[c]);
      }
    }
    for (std::int64_t c = 0; c < width; ++c)
      out[c] = mean_and_m2(guess[c], rest[c], squares[c], count);
  }
};

// The sums for the derivative: dy, and dy times the normalised x.
template <class C>
struct Slopes {
  Elements<C> dy;
  Elements<C> x;
  const C* mean;
  const C* rstd;

  Pair block(const ChannelShape& s, std::int64_t channel, std::int64_t begin,
             std::int64_t end) const {
    C dy_buffer[kBlock], x_buffer[kBlock];
    const C* d = dy.read_channel(s, channel, begin, end, dy_buffer);
    const C* v = x.read_channel(s, channel, begin, end, x_buffer);
    const C m = mean[channel], r = rstd[channel];
    const std::int64_t n = end - begin;
    const auto [sum, along] = cpu::lane_sums<C>(n, [=](std::int64_t i) {
      return std::array<C, 2>{d[i], scalar::mul(d[i], (v[i] - m) * r)};
    });
    return {sum, along};
  }

  void columns(const ChannelShape& s, std::int64_t first, std::int64_t width, std::int64_t begin,
               std::int64_t end, Pair* out) const {
    C dy_buffer[kColumns], x_buffer[kColumns], sum[kColumns] = {}, along[kColumns] = {};
    const C *m = mean + first, *r = rstd + first;
    for (std::int64_t row = begin; row < end; ++row) {
      const C* d = dy.read(row * s.channels + first, width, dy_buffer);
      const C* v = x.read(row * s.channels + first, width, x_buffer);
      for (std::int64_t c = 0; c < width; ++c) {
        sum[c] += d[c];
        along[c] = scalar::fma(d[c], (v[c] - m[c]) * r[c], along[c]);
      }
    }
    for (std::int64_t c = 0; c < width; ++c) out[c] = {sum[c], along[c]};
  }
};

// partial[block * channels + channel], for every block.
template <class Sums>
void all_blocks(const ChannelShape& s, const Sums& sums, Pair* partial) {
  const std::int64_t width = s.spatial == 1 ? kColumns : 1;
  const std::int64_t groups = (s.channels + width - 1) / width;
  const std::int64_t length = s.block_length();
  cpu::parallel_rows(groups * s.blocks(), width * length, [&](std::int64_t task) {
    const std::int64_t block = task / groups, first = task % groups * width;
    const std::int64_t begin = block * length, end = std::min(s.count(), begin + length);
    Pair* out = partial + block * s.channels + first;
    if (s.spatial == 1) {
      sums.columns(s, first, std::min(width, s.channels - first), begin, end, out);
    } else {
      *out = sums.block(s, first, begin, end);
    }
  });
}

}  // namespace

void ChannelStatisticsKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.x.dtype, [&]<class C>() {
    const ChannelShape& s = a.shape;
    auto* partial = static_cast<Pair*>(scratch.data);
    all_blocks(s, Moments<C>{elements<C>(a.x)}, partial);
    a.count.as<double>()[0] = static_cast<double>(s.count());
    C *mean = a.mean.as<C>(), *m2 = a.m2.as<C>();
    // Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983.
    cpu::parallel_rows(s.channels, s.blocks(), [=](std::int64_t c) {
      double n = 0, of_all = 0, squares = 0;
      for (std::int64_t b = 0; b < s.blocks(); ++b) {
        const Pair& p = partial[b * s.channels + c];
        const auto m =
            static_cast<double>(std::min(s.block_length(), s.count() - b * s.block_length()));
        const double away = p.first - of_all;
        of_all += away * (m / (n + m));
        squares += p.second + away * away * (n * m / (n + m));
        n += m;
      }
      mean[c] = static_cast<C>(of_all);
      m2[c] = static_cast<C>(squares);
    });
  });
}

void ChannelSumsKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.x.dtype, [&]<class C>() {
    const ChannelShape& s = a.shape;
    auto* partial = static_cast<Pair*>(scratch.data);
    all_blocks(s, Slopes<C>{elements<C>(a.dy), elements<C>(a.x), a.mean.as<C>(), a.rstd.as<C>()},
               partial);
    C *sum_dy = a.sum_dy.as<C>(), *sum_dy_normal = a.sum_dy_normal.as<C>();
    cpu::parallel_rows(s.channels, s.blocks(), [=](std::int64_t c) {
      double sum = 0, along = 0;
      for (std::int64_t b = 0; b < s.blocks(); ++b) {
        sum += partial[b * s.channels + c].first;
        along += partial[b * s.channels + c].second;
      }
      sum_dy[c] = static_cast<C>(sum);
      sum_dy_normal[c] = static_cast<C>(along);
    });
  });
}

}  // namespace tessera
