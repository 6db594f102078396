#pragma once

/// report.html: one page with everything in it.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tessera/tools/watch/metrics_reader.h"
#include "tessera/tools/watch/report_charts.h"

namespace tessera::tools {

struct ReportPage {
  std::string title;
  const RunMetrics& run;
  const std::vector<RunChart>& charts;
  const nlohmann::ordered_json& config;   ///< an object
  const nlohmann::ordered_json& summary;  ///< an object, perhaps empty
  std::string sample;                     ///< of any bytes; empty: none
  std::string failure;                    ///< likewise
};

/// HTML that is well-formed XML too.
std::string html_of(const ReportPage& page);

}  // namespace tessera::tools
