// What the reports' pages have in common: the document around them, and the elements of their
// drawings. All text is escaped here.
#ifndef WEIR_TOOLS_REPLAY_REPORT_PAGE_H_
#define WEIR_TOOLS_REPLAY_REPORT_PAGE_H_

#include <string>

namespace weir::replay {

// A whole document that loads nothing, with the reports' style and script. `main` is HTML.
std::string HtmlPage(const std::string& title, const std::string& main);

// Elements of an SVG drawing, in its own units. `anchor` is start, middle or end.
std::string SvgNumber(double value);
std::string SvgText(double x, double y, const char* anchor, const std::string& text);
std::string SvgLine(const char* css_class, double x1, double y1, double x2, double y2);

// One bar of a <dl class="bars">: its length is the value, all bars from the same zero.
std::string HtmlBar(const char* css_class, const std::string& name, double value, double widest,
                    const std::string& label);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPORT_PAGE_H_
