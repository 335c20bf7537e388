"""The style sheet of bench.html: light or dark as the reader's system is."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1b1f24; --quiet: #57606a; --rule: #d0d7de;
  --weir: #0b62b8; --other: #8c959f; --good: #1a7f37; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --text: #e6e9ed; --quiet: #9aa4b0; --rule: #363d45;
    --weir: #6cb2ff; --other: #6e7883; --good: #6fdd8b; --bad: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
p { margin: .25rem 0 .75rem; max-width: 60rem; }
.quiet { color: var(--quiet); font-size: .8125rem; }
.met { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8125rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; vertical-align: top; }
th:first-child, .text { text-align: left; }
tbody th { font-weight: 500; }
figure { margin: .75rem 0 0; }
svg.chart { display: block; width: 100%; max-width: 48rem; height: auto;
  font: 11px system-ui, sans-serif; }
svg text { fill: var(--quiet); }
svg .head { fill: var(--text); font-weight: 600; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .weir { fill: var(--weir); }
svg .other { fill: var(--other); }
"""
