"""How the page looks, in light and in dark."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #f4f5f8; --card: #ffffff; --ink: #1b2129; --soft: #5a6472; --line: #e1e5ea;
  --hover: rgba(40, 60, 100, .08); --accent: #2b59c3;
  --insert: #12976f; --update: #3a72d8; --delete: #d9622b; --truncate: #a34fa8;
  --plain: #4a6ee0; --worst: #a38be3; --mean: #5034b8;
  --bad: #b42318; --bad-soft: #fdeceb; --good: #0b7a57; --good-soft: #e4f5ee;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1318; --card: #181d24; --ink: #e7eaef; --soft: #9ca7b5; --line: #2a313b;
    --hover: rgba(200, 215, 255, .10); --accent: #8fb0ff;
    --insert: #35c296; --update: #6ea0ff; --delete: #f38b55; --truncate: #d587da;
    --plain: #7f9cff; --worst: #6d5cb3; --mean: #bba6ff;
    --bad: #ff8f86; --bad-soft: #3a1d1c; --good: #4ed3a2; --good-soft: #15312a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main, header, footer { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; padding-bottom: 8px; }
header .made { color: var(--accent); font-weight: 600; font-size: 13px; letter-spacing: .04em; }
h1 { font-size: 32px; line-height: 1.2; margin: 4px 0 8px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 0 0 4px; }
h3 { font-size: 14px; margin: 0; font-weight: 600; }
p { margin: 0 0 10px; }
header p { font-size: 16px; color: var(--soft); }
header b { color: var(--ink); font-weight: 600; }
.note { color: var(--soft); font-size: 13.5px; max-width: 75em; }
h1, p, td, th, dd { overflow-wrap: anywhere; }
footer { color: var(--soft); font-size: 13px; padding-top: 8px; padding-bottom: 40px; }

.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; padding: 0; }
.tiles div, section {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px;
}
.tiles div { padding: 14px; display: flex; flex-direction: column; flex: 1 0 auto;
  min-width: 128px; max-width: 100%; }
.tiles dt { color: var(--soft); font-size: 13px; }
.tiles dd { margin: 0; }
.tiles .value { font-size: 25px; font-weight: 650; line-height: 1.25; letter-spacing: -.01em;
  white-space: nowrap; }
.tiles .more { color: var(--soft); font-size: 13px; }
.tiles .bad .value { color: var(--bad); }
.tiles .good .value { color: var(--good); }
section { padding: 20px 24px 22px; margin: 0 0 16px; }

.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0; padding: 0; list-style: none;
  font-size: 13px; color: var(--soft); }
.legend span { display: inline-block; width: 10px; height: 10px; border-radius: 3px;
  margin-right: 6px; }
.insert { fill: var(--insert); background: var(--insert); }
.update { fill: var(--update); background: var(--update); }
.delete { fill: var(--delete); background: var(--delete); }
.truncate { fill: var(--truncate); background: var(--truncate); }
.plain { fill: var(--plain); background: var(--plain); }
.worst { fill: var(--worst); background: var(--worst); }
.mean { fill: var(--mean); background: var(--mean); }

figure { margin: 18px 0 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 2px 18px; align-items: baseline; }
.plot { display: grid; grid-template-columns: 64px 1fr; column-gap: 8px; margin-top: 8px; }
.heights { position: relative; margin: 6px 0; }
.heights .y { position: absolute; right: 0; transform: translateY(50%); white-space: nowrap; }
.y, .x { font-size: 12px; line-height: 1; color: var(--soft); font-variant-numeric: tabular-nums; }
.drawing { height: 120px; margin: 6px 0; }
.drawing svg { display: block; width: 100%; height: 100%; overflow: visible; }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.hover { fill: transparent; }
.hover:hover { fill: var(--hover); }
.times { grid-column: 2; position: relative; height: 16px; overflow: hidden; }
.times .x { position: absolute; top: 2px; transform: translateX(-50%); white-space: nowrap; }

.scroll { overflow-x: auto; margin: 12px -4px 0; padding: 0 4px; }
.scroll:focus-visible { outline: 2px solid var(--accent); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: 13.5px; padding: 0 0 6px; }
th { text-align: left; font-weight: 600; }
thead th { color: var(--soft); font-size: 12.5px; white-space: nowrap; vertical-align: bottom; }
th, td { padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody th { min-width: 9em; max-width: 24em; }
tbody tr:hover { background: var(--hover); }
tfoot td, tfoot th { border-bottom: 0; font-weight: 600; }
tbody:last-child tr:last-child > * { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
.number { text-align: right; white-space: nowrap; }
.nothing { color: var(--soft); }
.wide { width: 34%; min-width: 120px; }
.narrow { width: 15%; min-width: 90px; }
.time { white-space: nowrap; }
.names { min-width: 15em; }
.bar { display: block; width: 100%; height: 10px; margin-top: 6px; }
.code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12.5px;
  white-space: nowrap; }

.lanes { margin: 10px 0 4px; }
.lane { display: grid; grid-template-columns: minmax(6em, 14em) 1fr; column-gap: 12px;
  align-items: center; font-size: 14px; }
.lane .name { overflow-wrap: anywhere; padding: 3px 0; }
.track { position: relative; height: 20px; margin: 0 8px; }
.track::before { content: ""; position: absolute; left: -8px; right: -8px; top: 50%;
  border-top: 1px solid var(--line); }
.track.times { height: 16px; overflow: visible; margin: 0 8px; }
.track.times::before { display: none; }
.mark { position: absolute; top: 50%; width: 14px; height: 14px; margin: -7px 0 0 -7px;
  border-radius: 50%; border: 2px solid var(--card); background: var(--truncate); }
.mark.first { background: var(--card); border-color: var(--soft); }
.legend .mark { position: static; margin: 0 4px -1px 0; border-radius: 50%; width: 12px;
  height: 12px; }
.sign { display: inline-block; min-width: 1.1em; font-weight: 700; }
.sign.added { color: var(--good); }
.sign.removed { color: var(--bad); }
.sign.changed { color: var(--accent); }
ul.details { list-style: none; margin: 0; padding: 0; }

.verdict { display: inline-block; padding: 6px 12px; border-radius: 8px; margin: 6px 0 4px;
  font-weight: 600; }
.verdict.good { color: var(--good); background: var(--good-soft); }
.verdict.bad { color: var(--bad); background: var(--bad-soft); }
dl.facts { display: grid; grid-template-columns: minmax(7em, 12em) 1fr; gap: 5px 16px;
  margin: 10px 0 0; font-size: 14px; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; font-variant-numeric: tabular-nums; }

@media (max-width: 640px) {
  main, header, footer { padding-left: 12px; padding-right: 12px; }
  header { padding-top: 24px; }
  h1 { font-size: 25px; }
  section { padding: 16px 14px; }
  .tiles .value { font-size: 21px; }
  .plot { grid-template-columns: 52px 1fr; column-gap: 6px; }
  .times .x:nth-child(even), .times .x.long { display: none; }
  .times .x.long:nth-child(2), .times .x.long:nth-child(5) { display: inline; }
  dl.facts { grid-template-columns: 1fr; gap: 0; }
  dl.facts dd { margin-bottom: 8px; }
}
@media print {
  body { background: none; }
  section, .tiles div { break-inside: avoid; }
}
"""
