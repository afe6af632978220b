#include "metrics/report_page.h"

namespace distbelief {

std::string_view report_style() {
  return R"css(
:root {
  color-scheme: light dark;
  --page: #fafaf8; --card: #ffffff; --ink: #1f2328; --soft: #656d76; --rule: #e4e4df; --grid: #ecece8;
  --good: #1a7f4b; --good-soft: #e7f4ec; --bad: #b3261e; --bad-soft: #fbeae9;
  --s0: #2864b4; --s1: #d9730d; --s2: #2a8a57; --s3: #8250b8; --s4: #c7364f;
  --s5: #11889c; --s6: #a07c00; --s7: #c2478f; --s8: #5b6b7b; --s9: #6f9a1f;
  --shadow: 0 1px 2px rgb(30 35 40 / 5%), 0 4px 16px rgb(30 35 40 / 4%);
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1b1f23; --ink: #e6e8ea; --soft: #98a1aa; --rule: #2d3238; --grid: #272c31;
    --good: #5cc98d; --good-soft: #16291f; --bad: #f28b82; --bad-soft: #331b1a;
    --s0: #74a9ee; --s1: #f0a054; --s2: #66c795; --s3: #bd97ea; --s4: #f07f8f;
    --s5: #5cc6d6; --s6: #dcbb4a; --s7: #ea8cc2; --s8: #a9b7c4; --s9: #b2d766;
    --shadow: none;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 56px 24px 72px; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main, footer { max-width: 1080px; margin: 0 auto; }
h1 { margin: 0; font-size: 32px; line-height: 1.2; font-weight: 650; letter-spacing: -0.02em; overflow-wrap: anywhere; }
h1 .on { color: var(--soft); font-weight: 400; }
h2 { margin: 56px 0 16px; font-size: 19px; font-weight: 620; letter-spacing: -0.01em; }
.sub { margin: 8px 0 0; color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 24px 32px; margin: 36px 0 0; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 2px 0 0; font-size: 22px; line-height: 1.3; font-weight: 560; letter-spacing: -0.01em; white-space: nowrap; }
.facts .first dd { color: var(--s0); }
.audit {
  display: flex; gap: 10px; margin: 32px 0 0; padding: 11px 16px; border-radius: 10px;
  background: var(--good-soft); color: var(--good);
}
.audit.bad { background: var(--bad-soft); color: var(--bad); }
.audit b { font-weight: 620; }
.audit span { color: var(--ink); }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px; margin: 40px 0 0; }
.chart, .card { margin: 0; padding: 18px 20px 16px; background: var(--card); border: 1px solid var(--rule); border-radius: 12px; box-shadow: var(--shadow); }
.chart:last-child:nth-child(odd) { grid-column: 1 / -1; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 4px 16px; margin-bottom: 18px; font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; font-weight: 400; color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 7px; }
.key::before { content: ""; width: 14px; height: 3px; border-radius: 2px; background: var(--c); }
.key.level::before { height: 0; background: none; border-top: 2px dashed var(--soft); border-radius: 0; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); }
.s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); } .s8 { --c: var(--s8); } .s9 { --c: var(--s9); }
.frame { padding: 0 6px 26px 50px; }
.plot { position: relative; height: 210px; outline: none; cursor: crosshair; touch-action: pan-y; }
.plot:focus-visible { box-shadow: 0 0 0 2px var(--s0); border-radius: 4px; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.plot path { fill: none; stroke: var(--c); stroke-linecap: round; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.plot .grid { stroke: var(--grid); stroke-width: 1; }
.plot .level { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 5; }
.plot .line, .plot .faint { clip-path: url(#inside); }
.plot .line { stroke-width: 2; }
.plot .faint { stroke-width: 1; opacity: 0.28; }
.plot .dots { stroke-width: 6.5; }
.ytick, .xtick, .xname { position: absolute; font-size: 12px; line-height: 1; color: var(--soft); white-space: nowrap; pointer-events: none; }
.ytick { right: 100%; margin-right: 10px; transform: translateY(-50%); }
.xtick { top: 100%; margin-top: 10px; transform: translateX(-50%); }
.xname { top: 100%; right: 100%; margin: 10px 12px 0 0; }
.cursor { position: absolute; top: 0; bottom: 0; width: 0; border-left: 1px solid var(--soft); opacity: 0.5; pointer-events: none; }
.mark { position: absolute; width: 9px; height: 9px; margin: -6.5px 0 0 -6.5px; border-radius: 50%; background: var(--c); border: 2px solid var(--card); box-sizing: content-box; pointer-events: none; }
.tip {
  position: absolute; top: -6px; z-index: 2; padding: 9px 12px; border: 1px solid var(--rule); border-radius: 8px; background: var(--card);
  box-shadow: 0 4px 18px rgb(0 0 0 / 14%); font-size: 13px; line-height: 1.5; white-space: nowrap; pointer-events: none;
}
.tip.low { top: auto; bottom: 10px; }
.tip .at { color: var(--soft); margin-bottom: 2px; }
.tip .row { display: flex; justify-content: space-between; gap: 20px; }
.tip .row b { font-weight: 600; }
.note { margin: 14px 2px 0; color: var(--soft); font-size: 13px; }
.tables { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 20px; align-items: start; }
.card { padding: 6px 20px; overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14px; }
th, td { padding: 9px 0; text-align: left; vertical-align: baseline; border-top: 1px solid var(--rule); }
thead tr > *, .pairs tr:first-child > * { border-top: 0; }
th { color: var(--soft); font-weight: 400; }
td + td, th + td, th + th { padding-left: 24px; }
.pairs th { width: 38%; white-space: nowrap; }
.pairs td { overflow-wrap: anywhere; }
.layers td:first-child { font-weight: 540; }
.layers .none { color: var(--soft); opacity: 0.6; }
.layers .number { text-align: right; white-space: nowrap; }
.layers tfoot td { border-top-color: var(--soft); font-weight: 640 !important; }
.hidden { position: absolute; width: 0; height: 0; }
summary { padding: 9px 0; cursor: pointer; color: var(--soft); }
footer { margin-top: 56px; color: var(--soft); font-size: 13px; }
@media (max-width: 1040px) { .facts { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
@media (max-width: 760px) {
  body { padding: 32px 16px 48px; font-size: 14.5px; }
  h1 { font-size: 25px; }
  h2 { margin-top: 40px; }
  .charts, .tables { grid-template-columns: minmax(0, 1fr); }
  .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px 20px; margin-top: 28px; }
  .facts dd { font-size: 19px; }
  .chart { padding: 16px 14px 14px; }
  .card { padding: 4px 14px; }
  .frame { padding-left: 46px; }
  td + td, th + td, th + th { padding-left: 14px; }
}
@media print { body { padding: 0; } .chart, .card { break-inside: avoid; box-shadow: none; } }
)css";
}

}  // namespace distbelief
