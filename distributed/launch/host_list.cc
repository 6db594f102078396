#include "tessera/distributed/launch/host_list.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr std::size_t kMostHosts = 65536;
constexpr std::size_t kMostDigits = 9;

[[noreturn]] void refuse(std::string_view variable, std::string_view list, std::string_view why) {
  throw_error<InvalidArgument>("launch", "{}={} is no list of Slurm's: {}", variable, list, why);
}

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  if (text.empty() || text.size() > kMostDigits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// The texts between commas that stand outside of brackets.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (at < text.size() && (c != ',' || depth != 0)) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return parts;
}

class HostList {
 public:
  HostList(std::string_view variable, std::string_view list) : variable_(variable), list_(list) {}

  std::vector<std::string> hosts() const {
    std::vector<std::string> all;
    for (const std::string_view name : split(list_)) {
      if (name.empty()) refuse(variable_, list_, "a name is empty");
      add(all, expand(name));
    }
    return all;
  }

 private:
  void add(std::vector<std::string>& all, const std::vector<std::string>& more) const {
    if (all.size() + more.size() > kMostHosts)
      refuse(variable_, list_, fmt::format("it names more than {} hosts", kMostHosts));
    all.insert(all.end(), more.begin(), more.end());
  }

  // All names that a text with any number of brackets stands for.
  std::vector<std::string> expand(std::string_view name) const {
    const std::size_t open = name.find('['), close = name.find(']');
    if (open == name.npos && close == name.npos) return {std::string(name)};
    if (open == name.npos || close == name.npos || close < open)
      refuse(variable_, list_, "its brackets do not match");
    const std::vector<std::string> ends = expand(name.substr(close + 1));
    std::vector<std::string> all;
    for (const std::string_view range : split(name.substr(open + 1, close - open - 1)))
      for (const std::string& number : numbers(range)) {
        std::vector<std::string> names;
        for (const std::string& end : ends)
          names.push_back(std::string(name.substr(0, open)) + number + end);
        add(all, names);
      }
    return all;
  }

  // "08-11" as 08, 09, 10, 11.
  std::vector<std::string> numbers(std::string_view range) const {
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == range.npos ? first : range.substr(dash + 1);
    const std::optional<int> from = number_of(first), to = number_of(last);
    if (!from || !to || *to < *from)
      refuse(variable_, list_, fmt::format("\"{}\" is no range of numbers", range));
    if (static_cast<std::size_t>(*to - *from) >= kMostHosts)
      refuse(variable_, list_, fmt::format("it names more than {} hosts", kMostHosts));
    std::vector<std::string> out;
    for (int number = *from; number <= *to; ++number)
      out.push_back(fmt::format("{:0{}}", number, first.size()));
    return out;
  }

  std::string_view variable_;
  std::string_view list_;
};

}  // namespace

std::vector<std::string> expand_hosts(std::string_view variable, std::string_view list) {
  return HostList(variable, list).hosts();
}

std::vector<int> expand_counts(std::string_view variable, std::string_view list) {
  std::vector<int> counts;
  for (const std::string_view part : split(list)) {
    const std::size_t open = part.find("(x");
    const bool repeats = open != part.npos && part.ends_with(')');
    const std::optional<int> count = number_of(part.substr(0, open));
    const std::optional<int> times =
        repeats ? number_of(part.substr(open + 2, part.size() - open - 3)) : std::optional(1);
    if (!count || !times || (open != part.npos && !repeats))
      refuse(variable, list, fmt::format("\"{}\" is no number of tasks", part));
    if (counts.size() + static_cast<std::size_t>(*times) > kMostHosts)
      refuse(variable, list, fmt::format("it names more than {} hosts", kMostHosts));
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace tessera::distributed
