// The file of ISTHMUS_ASCEND_REPORT: a line of JSON for each function, outcome and call site, when it is
// first seen and, with the number of calls, when the process ends. `isthmus ascend report` reads it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "ascend_options.h"
#include "call_site.h"
#include "enqueue.h"
#include "errors.h"

namespace isthmus::ascend {
namespace {

constexpr const char* kOutcomes[] = {"called", "refused", "accepted", "missing"};

const std::string& report_file() {
  static const auto* const file = new std::string(options::value_of(options::kAscendReport.variable));
  return *file;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') result += '\\';
    if (static_cast<unsigned char>(each) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", each);
      result += escaped;
    } else {
      result += each;
    }
  }
  return result + "\"";
}

class Report {
 public:
  void count(const char* function, int outcome, const char* message) {
    const std::string site = call_site();
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t& calls = calls_[{function, outcome, site}];
    if (calls++ == 0)
      append("{\"function\": " + quoted(function) + ", \"outcome\": \"" + kOutcomes[outcome] +
             "\", \"site\": " + quoted(site) + ", \"message\": " + quoted(message) + ", \"calls\": 1}\n");
  }

  void finish() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, calls] : calls_)
      if (calls > 1)
        append("{\"function\": " + quoted(std::get<0>(key)) + ", \"outcome\": \"" +
               kOutcomes[std::get<1>(key)] + "\", \"site\": " + quoted(std::get<2>(key)) +
               ", \"message\": \"\", \"calls\": " + std::to_string(calls - 1) + "}\n");
    calls_.clear();
  }

 private:
  // In one write, as several processes may share the file.
  static void append(const std::string& line) {
    const int file = open(report_file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (write(file, line.data(), line.size()) < 0) std::perror("isthmus: ISTHMUS_ASCEND_REPORT");
    close(file);
  }

  std::mutex mutex_;  // guards what follows
  std::map<std::tuple<std::string, int, std::string>, uint64_t> calls_;
};

Report& calls() {
  static Report* const calls = [] {
    std::atexit([] { isthmus::ascend::calls().finish(); });
    return new Report;
  }();
  return *calls;
}

}  // namespace
}  // namespace isthmus::ascend

ISTHMUS_ASCEND_EXPORT bool isthmus_ascend_reports() {
  static const bool reports = !isthmus::ascend::report_file().empty();
  return reports;
}

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_count(const char* function, isthmus_ascend_outcome outcome,
                                                const char* message) {
  if (isthmus_ascend_reports()) isthmus::ascend::calls().count(function, outcome, message);
}
