#include <fmt/format.h>

#include <algorithm>

#include "tessera/distributed/launch/probe.h"
#include "tessera/tools/program/doctor/checks.h"

namespace tessera::tools::doctor {
namespace {

bool is_own(const NetworkFacts& network, const std::string& address) {
  return std::any_of(network.interfaces.begin(), network.interfaces.end(),
                     [&](const NetworkInterface& each) {
                       return std::find(each.addresses.begin(), each.addresses.end(), address) !=
                              each.addresses.end();
                     });
}

// "eth0 192.0.2.2, ib0 10.1.0.3": those that lead to other hosts.
std::string interfaces_text(const NetworkFacts& network) {
  std::string text;
  for (const NetworkInterface& each : network.interfaces) {
    if (!each.is_up || each.is_loopback || each.addresses.empty()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.name, each.addresses.front());
  }
  return text;
}

void check_way(const NetworkFacts& network, std::vector<Finding>& findings) {
  Check check("network", findings);
  const std::string there = interfaces_text(network);
  if (!network.endpoint_problem.empty())
    check.fail(fmt::format("no way leads to --rdzv-endpoint {}: {}", network.endpoint,
                           network.endpoint_problem),
               "name host 0 by an address or a name that this host knows, with its port");
  else if (!there.empty() && network.route_address.empty())
    check.warn(
        fmt::format("no default route, so runs of several hosts find their interface ({}) only "
                    "by the endpoint",
                    there),
        "name the interface with --local-addr");
  const std::string used =
      network.route_address.empty()
          ? ""
          : fmt::format("; a run of several hosts{} would use {}",
                        network.endpoint.empty() ? "" : " at " + network.endpoint,
                        network.route_address);
  check.ok(there.empty() ? "loopback only: runs on this host alone" : there + used);
}

void check_host_name(const NetworkFacts& network, std::vector<Finding>& findings) {
  Check check("host name", findings);
  const std::string& name = network.host_name;
  const std::vector<std::string>& all = network.host_addresses;
  if (all.empty()) {
    check.warn(
        fmt::format("{} does not resolve ({}); launchers that name hosts, such as torchrun and "
                    "Slurm, need it",
                    name, network.host_problem),
        fmt::format("add \"ADDRESS {}\" to /etc/hosts, with this host's address", name));
  } else if (std::none_of(all.begin(), all.end(), distributed::can_be_reached)) {
    if (!interfaces_text(network).empty())
      check.warn(
          fmt::format("{} resolves to {}, which other hosts cannot reach", name, all.front()),
          fmt::format("let /etc/hosts say this host's address for {}, or name an address in "
                      "--rdzv-endpoint",
                      name));
  } else if (std::none_of(all.begin(), all.end(),
                          [&](const std::string& each) { return is_own(network, each); })) {
    check.warn(
        fmt::format("{} resolves to {}, which is no address of this host", name, all.front()),
        "correct /etc/hosts or the name server's entry");
  }
  check.ok(fmt::format("{} is {}", name, all.empty() ? "" : all.front()));
}

void check_loopback(const NetworkFacts& network, std::vector<Finding>& findings) {
  Check check("loopback", findings);
  if (!network.loopback_problem.empty())
    check.fail(fmt::format("127.0.0.1 cannot be connected to: {}; rank processes need it",
                           network.loopback_problem),
               "bring it up (ip link set lo up), and let the firewall pass it");
  check.ok("127.0.0.1 can be connected to");
}

}  // namespace

void check_network(const Facts& facts, std::vector<Finding>& findings) {
  check_way(facts.network, findings);
  check_host_name(facts.network, findings);
  check_loopback(facts.network, findings);
}

}  // namespace tessera::tools::doctor
