#include "tessera/tensor/profile/profile_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

using Cells = std::vector<std::string>;

// Columns as wide as their longest cell; the first `left` are aligned to the left.
std::string grid(const std::vector<Cells>& lines, std::size_t left) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const Cells& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += i == 0 ? "" : "  ";
      text += i < left ? fmt::format("{:<{}}", line[i], widths[i])
                       : fmt::format("{:>{}}", line[i], widths[i]);
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

bool is_number(const std::string& part) {
  return !part.empty() && std::all_of(part.begin(), part.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "blocks.3.up" -> "blocks.*.up".
std::string without_numbers(const std::string& path) {
  std::string out;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t dot = std::min(path.find('.', from), path.size());
    const std::string part = path.substr(from, dot - from);
    out += (from == 0 ? "" : ".") + (is_number(part) ? "*" : part);
    from = dot + 1;
  }
  return out;
}

void add(ProfileModule& to, const ProfileModule& from) {
  to.calls += from.calls;
  for (std::size_t phase = 0; phase < kProfilePhases; ++phase) {
    to.own[phase] += from.own[phase];
    to.whole[phase] += from.whole[phase];
  }
}

std::vector<ProfileModule> merged(const std::vector<ProfileModule>& modules) {
  std::vector<ProfileModule> out;
  std::map<std::string, std::size_t> places;
  for (const ProfileModule& module : modules) {
    const std::string path = without_numbers(module.path);
    const auto [place, is_new] = places.try_emplace(path, out.size());
    if (is_new) out.push_back({.path = path});
    add(out[place->second], module);
  }
  return out;
}

ProfileFigures all_phases(const std::array<ProfileFigures, kProfilePhases>& phases) {
  ProfileFigures out;
  for (const ProfileFigures& phase : phases) out += phase;
  return out;
}

class TableWriter {
 public:
  TableWriter(const ProfileTableArgs& profile, const ProfileTableOptions& options)
      : profile_(profile), options_(options) {}

  std::string write() const {
    const double steps = static_cast<double>(std::max<std::int64_t>(1, profile_.steps));
    std::string out = fmt::format("{}: {} step{} of {} ms; all figures are per step\n",
                                  options_.title, profile_.steps, profile_.steps == 1 ? "" : "s",
                                  ms(static_cast<double>(profile_.wall_ns) / steps));
    if (profile_.dropped > 0)
      out += fmt::format("{} records and pieces of work did not fit: calls and times are too few\n",
                         profile_.dropped);
    if (profile_.steps == 0) return out;
    out += "\n" + phases();
    for (const std::string& thread : profile_.threads) out += "\n" + operations(thread);
    if (has_untimed()) out += "\n" + operations(kUntimedThread);
    return out + "\n" + modules();
  }

 private:
  double per_step(std::int64_t value) const {
    return static_cast<double>(value) / static_cast<double>(profile_.steps);
  }
  static std::string ms(double nanoseconds) { return fmt::format("{:.3f}", nanoseconds * 1e-6); }
  std::string time(std::int64_t nanoseconds) const { return ms(per_step(nanoseconds)); }
  std::string share(std::int64_t nanoseconds) const {
    return fmt::format("{:.1f} %",
                       100 * static_cast<double>(nanoseconds) /
                           static_cast<double>(std::max<std::int64_t>(1, profile_.wall_ns)));
  }
  std::string count(std::int64_t value) const {
    if (value == 0) return "";
    return fmt::format("{:.{}f}", per_step(value), value % profile_.steps == 0 ? 0 : 1);
  }
  std::string millions(std::int64_t value) const {
    return value == 0 ? "" : fmt::format("{:.3f}", per_step(value) * 1e-6);
  }
  std::string billions(std::int64_t value) const {
    return value == 0 ? "" : fmt::format("{:.4f}", per_step(value) * 1e-9);
  }
  // Per nanosecond, so in 1e9 per second.
  static std::string rate(const ProfileFigures& figures) {
    if (figures.flops == 0 || figures.self_ns == 0) return "";
    return fmt::format("{:.1f}",
                       static_cast<double>(figures.flops) / static_cast<double>(figures.self_ns));
  }

  bool has_untimed() const {
    return std::any_of(profile_.operations.begin(), profile_.operations.end(),
                       [](const ProfileRow& row) { return row.thread == kUntimedThread; });
  }

  std::string phases() const {
    constexpr std::size_t kKinds = 4;
    std::array<std::array<std::int64_t, kKinds>, kProfilePhases> times{};
    for (const ProfileRow& row : profile_.operations) {
      if (row.thread != kHostThread) continue;
      times[static_cast<std::size_t>(row.phase)][static_cast<std::size_t>(row.kind)] +=
          row.figures.self_ns;
    }
    std::vector<Cells> lines = {{"phase of the host", "ms", "share", "operations ms",
                                 "collectives ms", "waits ms", "outside ms"}};
    for (std::size_t phase = 0; phase < kProfilePhases; ++phase) {
      std::int64_t sum = 0;
      for (const std::int64_t part : times[phase]) sum += part;
      if (sum == 0) continue;
      Cells line = {profile_phase_name(static_cast<ProfilePhase>(phase)), time(sum), share(sum)};
      for (const std::int64_t part : times[phase]) line.push_back(time(part));
      lines.push_back(std::move(line));
    }
    return grid(lines, 1);
  }

  std::string operations(const std::string& thread) const {
    std::vector<ProfileRow> rows;
    std::copy_if(profile_.operations.begin(), profile_.operations.end(), std::back_inserter(rows),
                 [&](const ProfileRow& row) { return row.thread == thread; });
    // What is outside comes last, and is always shown.
    std::stable_partition(rows.begin(), rows.end(),
                          [](const ProfileRow& r) { return r.kind != ProfileKind::kOutside; });
    std::vector<Cells> lines = {{"on " + thread, "phase", "calls", "self ms", "total ms", "mean us",
                                 "share", "read MB", "written MB", "GFLOP", "GFLOP/s", "sent MB"}};
    ProfileFigures sum, rest;
    std::size_t shown = 0, left = 0;
    for (const ProfileRow& row : rows) {
      sum += row.figures;
      if (row.kind == ProfileKind::kOutside) {
        if (left > 0) lines.push_back(rest_line(std::exchange(left, 0), rest));
        if (row.figures.self_ns > 0)
          lines.push_back(line(row.name, thread == kHostThread ? profile_phase_name(row.phase) : "",
                               row.figures));
      } else if (shown < options_.rows) {
        ++shown;
        lines.push_back(line(row.name, profile_phase_name(row.phase), row.figures));
      } else {
        ++left;
        rest += row.figures;
      }
    }
    if (left > 0) lines.push_back(rest_line(left, rest));
    lines.push_back(line("sum", "", sum));
    return grid(lines, 2);
  }

  Cells rest_line(std::size_t rows, const ProfileFigures& figures) const {
    return line(fmt::format("{} more", rows), "", figures);
  }

  Cells line(const std::string& name, const std::string& phase,
             const ProfileFigures& figures) const {
    const bool is_timed = figures.self_ns > 0 || figures.untimed_calls < figures.calls;
    const auto if_timed = [&](std::string text) { return is_timed ? std::move(text) : ""; };
    const std::int64_t calls = std::max<std::int64_t>(1, figures.calls);
    return {name,
            phase,
            count(figures.calls),
            if_timed(time(figures.self_ns)),
            figures.calls > 0 ? if_timed(time(figures.total_ns)) : "",
            figures.calls > 0
                ? if_timed(fmt::format("{:.1f}", static_cast<double>(figures.total_ns) /
                                                     static_cast<double>(calls) * 1e-3))
                : "",
            if_timed(share(figures.self_ns)),
            millions(figures.bytes_read),
            millions(figures.bytes_written),
            billions(figures.flops),
            rate(figures),
            millions(figures.bytes_sent)};
  }

  std::string modules() const {
    std::vector<ProfileModule> modules =
        options_.merge_numbers ? merged(profile_.modules) : profile_.modules;
    const std::size_t left = keep_largest(modules);
    std::vector<Cells> lines = {{"module with those inside", "calls", "ms", "alone ms", "share",
                                 "forward ms", "recompute ms", "backward ms", "optimizer ms",
                                 "other ms", "GFLOP", "GFLOP/s", "sent MB"}};
    for (const ProfileModule& module : modules) {
      const ProfileFigures whole = all_phases(module.whole), own = all_phases(module.own);
      Cells line = {module.path, count(module.calls), time(whole.self_ns), time(own.self_ns),
                    share(whole.self_ns)};
      for (const ProfileFigures& phase : module.whole)
        line.push_back(phase.self_ns == 0 ? "" : time(phase.self_ns));
      for (const std::string& cell :
           {billions(whole.flops), rate(whole), millions(whole.bytes_sent)})
        line.push_back(cell);
      lines.push_back(std::move(line));
    }
    return grid(lines, 1) + (left > 0 ? fmt::format("{} more modules\n", left) : "");
  }

  // Returns how many it removed.
  std::size_t keep_largest(std::vector<ProfileModule>& modules) const {
    if (modules.size() <= options_.rows) return 0;
    std::vector<std::size_t> places(modules.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    const auto order = [&](std::size_t at) { return largest_first(all_phases(modules[at].whole)); };
    std::stable_sort(places.begin(), places.end(),
                     [&](std::size_t a, std::size_t b) { return order(a) < order(b); });
    places.resize(options_.rows);
    std::sort(places.begin(), places.end());  // the order of the modules stays
    std::vector<ProfileModule> kept;
    for (const std::size_t at : places) kept.push_back(std::move(modules[at]));
    std::swap(modules, kept);
    return kept.size() - modules.size();
  }

  const ProfileTableArgs& profile_;
  const ProfileTableOptions& options_;
};

}  // namespace

std::string profile_table(const ProfileTableArgs& profile, const ProfileTableOptions& options) {
  return TableWriter(profile, options).write();
}

std::tuple<std::int64_t, std::int64_t, std::int64_t> largest_first(const ProfileFigures& figures) {
  return {-figures.self_ns, -figures.flops,
          -(figures.bytes_read + figures.bytes_written + figures.bytes_sent)};
}

std::vector<std::string> modules_around(const std::string& path) {
  if (path == kNoModule) return {path};
  std::vector<std::string> out = {kRootModule};
  if (path == kRootModule) return out;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    out.push_back(path.substr(0, dot));
  out.push_back(path);
  return out;
}

}  // namespace tessera
