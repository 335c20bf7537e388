#include "tools/replay/report_page.h"

#include "tools/replay/report_style.h"
#include "tools/replay/report_text.h"
#include "tools/replay/text.h"

namespace weir::replay {

std::string HtmlPage(const std::string& title, const std::string& main) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      // Nothing may be loaded, whatever the page's text says.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
      "<title>" +
      EscapeHtml(title) + "</title><style>";
  html += kReportStyle;
  html += "</style></head><body><main><h1>" + EscapeHtml(title) + "</h1>" + main;
  html += "</main><script>";
  html += kReportScript;
  return html + "</script></body></html>\n";
}

std::string SvgNumber(double value) { return Fixed(value, 1); }

std::string SvgText(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + SvgNumber(x) + "\" y=\"" + SvgNumber(y) + "\" text-anchor=\"" + anchor +
         "\">" + EscapeHtml(text) + "</text>";
}

std::string SvgLine(const char* css_class, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + css_class + "\" x1=\"" + SvgNumber(x1) + "\" y1=\"" +
         SvgNumber(y1) + "\" x2=\"" + SvgNumber(x2) + "\" y2=\"" + SvgNumber(y2) + "\"/>";
}

std::string HtmlBar(const char* css_class, const std::string& name, double value, double widest,
                    const std::string& label) {
  const std::string open = std::string(" class=\"") + css_class + "\">";
  return "<dt" + open + EscapeHtml(name) + "</dt><dd" + open +
         "<i style=\"width:" + Fixed(75 * value / widest, 1) + "%\"></i>" + EscapeHtml(label) +
         "</dd>";
}

}  // namespace weir::replay
