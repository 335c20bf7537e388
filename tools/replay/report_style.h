// The report's style sheet and script. Both are whole: the page loads nothing, and works without
// the script, which only shows a chart's values under the pointer or at the arrow keys.
#ifndef WEIR_TOOLS_REPLAY_REPORT_STYLE_H_
#define WEIR_TOOLS_REPLAY_REPORT_STYLE_H_

namespace weir::replay {

inline constexpr char kReportStyle[] = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1b1f24; --quiet: #57606a; --rule: #d0d7de; --panel: #f4f6f8;
  --requested: #0b62b8; --reserved: #b4460b; --bad: #b3261e; --weir: #0b62b8; --other: #8c959f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --text: #e6e9ed; --quiet: #9aa4b0; --rule: #363d45; --panel: #1d2228;
    --requested: #6cb2ff; --reserved: #ffa066; --bad: #ff8a80; --weir: #6cb2ff; --other: #6e7883;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; overflow-wrap: anywhere; }
p { margin: .25rem 0 .75rem; max-width: 60rem; }
a { color: var(--requested); }
.quiet, figcaption { color: var(--quiet); font-size: .875rem; }
.label { display: inline-block; border: 1px solid var(--rule); border-radius: 1rem;
  padding: 0 .6rem; font-size: .8rem; color: var(--quiet); }
.bad { color: var(--bad); font-weight: 600; }
.headline { background: var(--panel); border-radius: .5rem; padding: 1rem 1.25rem; margin: 1rem 0; }
.headline p.figure { font-size: 1.25rem; margin-bottom: .5rem; }
.bars { display: grid; grid-template-columns: max-content 1fr; gap: .35rem .75rem; align-items: center;
  max-width: 46rem; margin: 0; }
.bars dt { margin: 0; }
.bars dd { margin: 0; display: flex; align-items: center; gap: .5rem; }
.bars i { display: block; height: .9rem; border-radius: .2rem; background: var(--other); }
.bars .weir i { background: var(--weir); }
.bars .weir { font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .8125rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .4rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; vertical-align: bottom; }
thead th { white-space: normal; font-weight: 600; }
th:first-child, .text { text-align: left; }
tbody th { font-weight: 500; }
td.failure { white-space: normal; min-width: 8rem; text-align: left; overflow-wrap: anywhere; }
figure { margin: .5rem 0 0; }
svg.chart { display: block; width: 100%; max-width: 60rem; height: auto; font: 12px system-ui, sans-serif; }
svg.pressure { display: block; width: 100%; max-width: 44rem; height: auto; font: 12px system-ui, sans-serif; }
svg.chart:focus-visible { outline: 2px solid var(--requested); outline-offset: 2px; }
svg [hidden] { display: none; }
svg text { fill: var(--quiet); }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .tick, svg .cursor { stroke: var(--quiet); stroke-width: 1; }
svg .requested-area { fill: var(--requested); opacity: .22; }
svg .requested { fill: none; stroke: var(--requested); stroke-width: 1; }
svg circle.requested { fill: var(--requested); }
svg circle.reserved { fill: var(--reserved); }
svg text.bad { fill: var(--bad); }
svg .reserved { fill: none; stroke: var(--reserved); stroke-width: 2; }
.key { display: inline-block; width: 1.4rem; margin-right: .3rem; vertical-align: middle; }
.key.requested { height: .8rem; background: var(--requested); opacity: .5; }
.key.reserved { height: 0; border-top: 3px solid var(--reserved); }
.legend { font-size: .875rem; display: flex; flex-wrap: wrap; gap: 0 1.25rem; }
output { font-variant-numeric: tabular-nums; min-height: 1.5em; color: var(--quiet); }
@media print {
  :root { --page: #fff; --text: #000; --quiet: #444; --rule: #bbb; --panel: #fff;
    --requested: #0b62b8; --reserved: #b4460b; --bad: #b3261e; --weir: #0b62b8; --other: #888; }
  body { max-width: none; padding: 0; font-size: 11px; }
  .headline { border: 1px solid var(--rule); }
  .bars i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  section.trace { break-inside: avoid; }
  thead { display: table-header-group; }
  .wide { overflow: visible; }
  table { font-size: 8.5px; }
  th, td { padding: .15rem .25rem; white-space: normal; }
  output { display: none; }
}
)css";

inline constexpr char kReportScript[] = R"js(
"use strict";
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i += 1; }
  return (Number.isInteger(n) || n >= 1000 ? n.toFixed(0) : n.toFixed(2)) + " " + units[i];
}
for (const chart of document.querySelectorAll("svg.chart")) {
  const figure = chart.closest("figure");
  const points = JSON.parse(figure.querySelector("script").textContent);
  const output = figure.querySelector("output");
  const cursor = chart.querySelector(".cursor");
  const left = Number(chart.dataset.left), right = Number(chart.dataset.right);
  const first = points[0][0], last = points[points.length - 1][0];
  let shown = -1;
  const place = (event) => last > first ? left + (event - first) / (last - first) * (right - left) : left;
  const show = (index) => {
    shown = Math.min(Math.max(index, 0), points.length - 1);
    const [event, requested, reserved] = points[shown];
    const x = place(event);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.removeAttribute("hidden");
    output.textContent = "event " + event.toLocaleString("en") + ": requested " + bytes(requested) +
      ", reserved " + bytes(reserved) +
      (requested > 0 ? ", reserved / requested " + (reserved / requested).toFixed(3) : "");
  };
  const nearest = (event) => {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < event) low = middle + 1; else high = middle;
    }
    return low > 0 && event - points[low - 1][0] < points[low][0] - event ? low - 1 : low;
  };
  chart.addEventListener("pointermove", (e) => {
    const box = chart.getBoundingClientRect();
    const x = (e.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
    show(nearest(first + (x - left) / (right - left) * (last - first)));
  });
  chart.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[e.key];
    if (step === undefined) return;
    e.preventDefault();
    show(shown + step);
  });
}
)js";

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPORT_STYLE_H_
