#include "show/page_style.hpp"

namespace carveout::probe {
namespace {

// Colours are of a contrast of 4.5 and more on both grounds. Those of arms (--a0 to --a7) are told
// apart by shape and dash as well.
constexpr std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --panel: #f4f4f0; --ink: #1b1e23; --soft: #575e68; --line: #dcdcd5;
  --good: #12663d; --bad: #a5281b; --part: #7a5200; --unsure: #4b5361;
  --a0: #41464f; --a1: #0b5cad; --a2: #b04a00; --a3: #6b3fa0;
  --a4: #0a7064; --a5: #a8225f; --a6: #5a6700; --a7: #7a4a2b;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #15171a; --panel: #1e2125; --ink: #e7e8ea; --soft: #a7adb6; --line: #353a41;
    --good: #74d19b; --bad: #ff9486; --part: #e8b95c; --unsure: #b7bec9;
    --a0: #c9cdd4; --a1: #7ab8ff; --a2: #ffa25c; --a3: #c9a8ff;
    --a4: #5fd4c4; --a5: #ff8fbf; --a6: #c5d15a; --a7: #d9a883;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
header p, header h1 { margin: 0; }
.kicker { color: var(--soft); font-size: .875rem; }
h1 { font-size: 1.375rem; line-height: 1.3; font-weight: 600; padding: .25rem 0 .375rem; }
.lede { color: var(--soft); max-width: none; overflow-wrap: anywhere; }
time, .option { white-space: nowrap; }
sup { line-height: 0; }
section { margin-top: 2.75rem; }
h2 { font-size: 1.125rem; line-height: 1.35; font-weight: 600; margin: 0 0 .75rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.5rem 0 .5rem; }
p { margin: 0 0 .75rem; max-width: 44rem; }
small, .note { font-size: .8125rem; color: var(--soft); }
code { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; font-size: .9em; }

.verdicts {
  display: grid; gap: 1rem; margin-top: 1.75rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
}
.verdict {
  background: var(--panel); border-left: .375rem solid var(--tone, var(--unsure));
  border-radius: .25rem; padding: 1.125rem 1.375rem; min-width: 0; overflow-wrap: anywhere;
}
.verdict h2 { margin: 0 0 .5rem; }
.verdict .of { display: block; font-size: 1rem; font-weight: 600; }
.verdict .word {
  display: block; font-size: 2rem; line-height: 1.2; font-weight: 650;
  letter-spacing: -.012em; color: var(--tone, var(--unsure));
}
.verdict p:last-child { margin-bottom: 0; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); } .part { --tone: var(--part); }
.verdict dl { display: grid; grid-template-columns: repeat(2, 1fr); gap: .625rem 1.25rem; margin: .875rem 0 0; }
.verdict dt { font-size: .8125rem; color: var(--soft); }
.verdict dd { margin: 0; }
.verdict dd small { display: block; }
.verdict dd b { font-size: 1.1875rem; font-weight: 600; }
.verdict ul { margin: 0; padding-left: 1.125rem; }

.missing { margin-top: 1rem; overflow-wrap: anywhere; }
.missing p { margin: 0; }
.missing ul { margin: 0; padding-left: 1.125rem; }
.missing b { color: var(--ink); font-weight: 600; }
.decision { margin: 1.25rem 0 0; font-size: 1.0625rem; font-weight: 600; }

figure { margin: 0; }
figcaption { margin-top: .5rem; }
svg.curve { display: block; width: 100%; height: auto; }
.narrow svg.curve { max-width: 30rem; margin: 0 auto; }
.tick { fill: var(--soft); }
.tick, .judged { stroke: var(--paper); stroke-width: 4px; paint-order: stroke; }
.judged { font-weight: 700; }
.grid { stroke: var(--line); stroke-opacity: 1; }
.axis { stroke: var(--soft); }
.end { stroke: var(--soft); }
.a0 { --arm: var(--a0); } .a1 { --arm: var(--a1); } .a2 { --arm: var(--a2); } .a3 { --arm: var(--a3); }
.a4 { --arm: var(--a4); } .a5 { --arm: var(--a5); } .a6 { --arm: var(--a6); } .a7 { --arm: var(--a7); }
.line, .leader { stroke: var(--arm); }
.band, .mark, .name, .fill { fill: var(--arm); }
.mark { stroke: var(--paper); stroke-width: 1; }
.name { font-weight: 600; }
@media (max-width: 640px) {
  main { padding: 1.5rem 1rem 3rem; }
  .wide { display: none; }
  .narrow { display: block; }
  .verdict { padding: 1rem 1.125rem; }
  .verdict .word { font-size: 1.625rem; }
}

.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; width: 100%; }
caption { text-align: left; color: var(--soft); font-size: .8125rem; padding-bottom: .5rem; }
caption span { display: block; position: sticky; left: 0; max-width: min(44rem, 100vw - 2rem); }
th, td { padding: .5rem 1.25rem .5rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
thead th, thead td { border-bottom: 2px solid var(--soft); font-weight: 600; vertical-align: bottom; white-space: nowrap; }
tbody th { font-weight: 500; position: sticky; left: 0; background: var(--paper); }
tbody th small { display: block; font-weight: 400; }
td { min-width: 6.5rem; }
.rows th:first-child { width: 30%; min-width: 8.5rem; }
td small { display: block; white-space: nowrap; }
.text td { min-width: 8rem; overflow-wrap: break-word; }
.text td:nth-child(3) { min-width: 5rem; }
.text td:last-child { min-width: 15rem; max-width: 30rem; }
.text th { white-space: nowrap; }
.figure { font-weight: 600; white-space: nowrap; }
.change { white-space: nowrap; font-weight: 600; color: var(--tone, var(--soft)); }
@media (max-width: 640px) {
  th, td { padding-right: .75rem; }
  .rows th:first-child { min-width: 6.5rem; }
  .rows td small { white-space: normal; }
}
/* Its reasons would be beyond the edge. */
@media screen and (max-width: 640px) {
  .text thead { display: none; }
  .text, .text tbody, .text tr, .text th, .text td { display: block; }
  .text tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .text tr > * { border: 0; padding: 0; max-width: none; }
  .text td:nth-child(3)::before { content: "pages: "; }
}
.swatch { width: .9em; height: .9em; vertical-align: -.08em; margin-right: .125em; overflow: visible; }
.bar { display: block; width: 100%; max-width: 14rem; height: .375rem; margin: .25rem 0; }
.bar .ground { fill: var(--line); }
.compact th, .compact td { padding-top: .25rem; padding-bottom: .25rem; }
.compact td small { display: inline; }

.remarks { border-left: .375rem solid var(--part); padding: .125rem 0 .125rem 1.125rem; }
.remarks ul, .needs { margin: 0; padding-left: 1.125rem; }
.remarks li, .needs li { margin-bottom: .375rem; max-width: 44rem; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1.5rem; margin: 0 0 1.5rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 480px) {
  .facts { display: block; }
  .facts dd { margin-bottom: .5rem; }
}
footer { margin-top: 3rem; padding-top: .75rem; border-top: 1px solid var(--line); }

@page { margin: 16mm 14mm; }
@media print {
  :root { color-scheme: light; }
  body { font-size: 10pt; background: none; }
  main { max-width: none; padding: 0; }
  section { margin-top: 1.75rem; }
  .wide { display: block; }
  .narrow { display: none; }
  .scroll { overflow: visible; }
  th, td { padding-right: .75rem; }
  .verdicts { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .75rem; }
  .verdict:only-child { grid-column: 1 / -1; }
  .verdict .word { font-size: 1.5rem; }
  tbody th { position: static; background: none; }
  .compact { break-inside: avoid; }
  .verdict { border: 1px solid var(--line); border-left: .375rem solid var(--tone, var(--unsure)); }
  .verdict, .decision, figure, tr, .remarks, li { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
  thead { display: table-header-group; }
  .verdict, .bar, .swatch, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace

std::string_view page_style() {
  return kStyle;
}

}  // namespace carveout::probe
