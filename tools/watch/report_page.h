#pragma once

/// report.html: one page with all charts and figures.

#include <string>
#include <vector>

#include "tessera/tools/watch/json_object.h"
#include "tessera/tools/watch/metrics_reader.h"
#include "tessera/tools/watch/report_charts.h"

namespace tessera::tools {

struct ReportPage {
  std::string title;
  const RunMetrics& run;
  const std::vector<RunChart>& charts;
  const std::vector<JsonRow>& config;
  const std::vector<JsonRow>& summary;
  std::string sample;   ///< of any bytes; empty: none
  std::string failure;  ///< likewise
};

/// HTML that is also well-formed XML.
std::string html_of(const ReportPage& page);

}  // namespace tessera::tools
