// The style sheet of the report: light and dark by the reader's setting, no outside resources.
#pragma once

#include <string_view>

namespace tandem::loadgen {

inline constexpr std::string_view kReportStyle = R"css(
:root{color-scheme:light dark;--bg:#f5f6f8;--card:#fff;--ink:#14171f;--soft:#5b6472;--rule:#e3e6eb;--grid:#eceef2;
--good:#12805c;--bad:#c4342b;--warn-bg:#fff6e0;--warn-ink:#7a4d00;--warn-rule:#f0d48a;
--c0:#2f6fed;--c1:#e8692c;--c2:#12948a;--c3:#9a4fd0;--c4:#c9398a;--c5:#7c8a1f}
@media(prefers-color-scheme:dark){:root{--bg:#0f1217;--card:#171b22;--ink:#e8ebf0;--soft:#98a2b1;--rule:#2a303a;--grid:#222831;
--good:#45c997;--bad:#ff7b70;--warn-bg:#2c2410;--warn-ink:#f3cf7a;--warn-rule:#5a4716;
--c0:#6ea3ff;--c1:#ff9a62;--c2:#3fd0c3;--c3:#c791f2;--c4:#ff7fc0;--c5:#bccb5a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:14px/1.5 Inter,system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1160px;margin:0 auto;padding:28px 24px 48px}
header{margin-bottom:20px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.02em}
h2{font-size:15px;margin:0;letter-spacing:-.005em}
.sub{color:var(--soft);margin:0}
.lead{font-size:16px;margin:14px 0 0}
.lead b{font-weight:650}
.card{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:16px 18px;margin-bottom:16px}
.head{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline;justify-content:space-between;margin-bottom:6px}
.note{color:var(--soft);font-size:12.5px;margin:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin-bottom:16px}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:13px 16px}
.tile .k{color:var(--soft);font-size:12.5px}
.tile .v{font-size:25px;font-weight:650;line-height:1.25;letter-spacing:-.02em}
.tile .v small{font-size:14px;font-weight:500;color:var(--soft);letter-spacing:0}
.tile .d{color:var(--soft);font-size:12.5px}
.three{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:16px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:16px}
.warn{background:var(--warn-bg);color:var(--warn-ink);border:1px solid var(--warn-rule);border-radius:12px;padding:10px 16px;margin-bottom:16px}
.warn p{margin:3px 0}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12.5px;color:var(--soft)}
.legend i,.swatch{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px;background:currentColor}
svg{display:block;width:100%;height:auto;overflow:visible}
.plot-title{font-size:12.5px;color:var(--soft);margin:10px 0 -14px 46px}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft);opacity:.6}
.tick{fill:var(--soft);font-size:10.5px}
.mark{fill:var(--ink);font-size:10.5px;font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:3px}
.pct{stroke:var(--ink);opacity:.55;stroke-dasharray:2 3}
.target{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 3}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}
.area,.band{fill:currentColor;opacity:.16}.diagonal{fill:none;stroke:var(--soft);stroke-dasharray:4 3}
.whisker{fill:none;stroke:var(--ink);stroke-width:1.2}.shares{display:flex;height:14px;border-radius:4px;overflow:hidden;margin:6px 0}
.shares i{display:block;background:currentColor;opacity:.8}
.line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}
.dots{fill:currentColor;opacity:.5}.bar{fill:currentColor;opacity:.75}.sweep .dots{opacity:1}.sweep th{white-space:normal;vertical-align:bottom}
.sweep .three{grid-template-columns:repeat(auto-fill,minmax(320px,1fr));margin-bottom:16px}.sweep .three .card{margin-bottom:0}
.sweep .three:empty{display:none}
.hint{fill:currentColor;opacity:0}.hint:hover{opacity:.07}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th{color:var(--soft);font-weight:500}
th:first-child,td:first-child{text-align:left;padding-left:0}
tr:last-child td{border-bottom:0}
.facts{width:auto}.facts td{text-align:left;padding-right:40px}
.dense th,.dense td{padding:4px 5px;font-size:12px}
.dense th:first-child,.dense td:first-child{padding-left:0}
td.text{white-space:normal;text-align:left;overflow-wrap:anywhere}
a{color:inherit;text-underline-offset:3px;text-decoration-color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}
details{margin-top:6px}summary{cursor:pointer;color:var(--soft)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:12px/1.5 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--bg);padding:10px 12px;border-radius:8px;margin:8px 0}
footer{color:var(--soft);font-size:12.5px}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}}
)css";

}  // namespace tandem::loadgen
