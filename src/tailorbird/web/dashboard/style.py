"""Style sheet of the dashboards: light and dark, wide and narrow."""

from __future__ import annotations

STYLE = """
:root {
  --paper: #f5f6f8; --card: #ffffff; --ink: #1c2733; --soft: #5d6b7a; --line: #e1e5ea; --accent: #1f6feb;
  --bar: #7fb0f5; --good: #1a7f4b; --bad: #b42318; --bad-paper: #fdecea; --arrived: #fff8dc; --hover: #eef3fb;
}
body.body--dark {
  --paper: #12171d; --card: #1b222a; --ink: #e6eaef; --soft: #9aa7b4; --line: #2d3742; --accent: #6ea8fe;
  --bar: #3f73b8; --good: #4cc38a; --bad: #ff8d80; --bad-paper: #3a1d1b; --arrived: #4a3f14; --hover: #24303c;
}
body, body.body--dark { background: var(--paper); color: var(--ink); font-size: 14px; }
.nicegui-content { max-width: 1720px; margin: 0 auto; padding: 20px; gap: 16px; align-items: stretch; width: 100%; }
.tb-top { display: flex; align-items: center; gap: 16px; flex-wrap: wrap; }
.tb-top h1 { font-size: 24px; line-height: 1.2; font-weight: 600; margin: 0; letter-spacing: -0.01em; }
.tb-others { display: flex; gap: 4px 14px; flex-wrap: wrap; }
.tb-others .tb-link { font-size: 15px; text-decoration: none; }
.tb-pill { display: inline-flex; align-items: center; gap: 7px; color: var(--good); font-weight: 500; }
.tb-pill::before { content: ""; width: 9px; height: 9px; border-radius: 50%; background: currentColor; }
.tb-pill.bad { color: var(--bad); }
.tb-search { flex: 1 1 280px; min-width: 0; max-width: 620px; margin-left: auto; }
.tb-search .q-field__control { background: var(--card); }
.tb-banner { background: var(--bad-paper); color: var(--bad); border: 1px solid currentColor; border-radius: 8px;
  padding: 12px 16px; font-weight: 500; }
.tb-card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0;
  padding: 14px 16px; }
.tb-stats { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 16px; }
.tb-name { color: var(--soft); font-size: 13px; }
.tb-number { font-size: 26px; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; }
.tb-note { color: var(--soft); font-size: 12px; }
.tb-chips:empty { display: none; }
.tb-chips { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
.tb-chip { border: 1px solid var(--line); background: var(--card); color: var(--ink); border-radius: 16px;
  cursor: pointer; padding: 4px 12px; font: inherit; font-size: 13px;
  max-width: 100%; overflow: hidden; text-overflow: ellipsis; }
.tb-chip::after { content: " ×"; color: var(--soft); }
.tb-link { border: 0; background: none; color: var(--accent); cursor: pointer; font: inherit; font-size: 13px;
  padding: 4px 2px; }
.tb-chip:hover, .tb-link:hover, .tb-others .tb-link:hover { text-decoration: underline; }
.tb-body { display: grid; grid-template-columns: 250px minmax(0, 1fr); gap: 16px; align-items: start; }
.tb-facets, .tb-main { display: flex; flex-direction: column; gap: 16px; min-width: 0; }
.tb-facet { margin: 0; padding: 12px 14px 10px; }
.tb-facet legend, .tb-heading { font-weight: 600; padding: 0; margin: 0 0 6px; font-size: 14px; line-height: 1.4; }
.tb-values:empty::after { content: "no values"; color: var(--soft); font-size: 13px; }
.tb-value { display: flex; align-items: center; gap: 8px; border-radius: 6px; }
.tb-value:hover { background: var(--hover); }
.tb-value .q-checkbox { flex: 1; min-width: 0; }
.tb-value .q-checkbox__label { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 14px; }
.tb-value .q-checkbox__inner { font-size: 32px; }
.tb-count { color: var(--soft); font-variant-numeric: tabular-nums; font-size: 13px; }
.tb-value.none .q-checkbox__label, .tb-value.none .tb-count { opacity: 0.55; }
.tb-value.nothing .q-checkbox__label { font-style: italic; }
.tb-headline { display: flex; gap: 12px; align-items: baseline; justify-content: space-between; flex-wrap: wrap; }
.tb-bars { display: flex; align-items: flex-end; height: 110px; gap: 1px; touch-action: pan-y; user-select: none;
  border-bottom: 1px solid var(--line); }
.tb-bar { flex: 1; height: 100%; min-width: 0; padding: 0; border: 0; background: none; cursor: pointer;
  position: relative; }
.tb-bar::before { content: ""; position: absolute; left: 0; right: 0; bottom: 0; height: var(--height);
  background: var(--bar); border-radius: 2px 2px 0 0; }
.tb-bar:hover, .tb-bar.brushed { background: var(--hover); }
.tb-bar:hover::before, .tb-bar.brushed::before, .tb-bar:focus-visible::before { background: var(--accent); }
.tb-ticks { position: relative; height: 22px; color: var(--soft); font-size: 12px; }
.tb-ticks > * { position: absolute; top: 4px; white-space: nowrap; }
.tb-table .q-table__bottom { border: 0; color: var(--soft); justify-content: center; padding: 28px; }
.tb-table { background: none; color: var(--ink); box-shadow: none; }
.tb-table .q-table__middle { max-height: none; }
.tb-table th { color: var(--soft); font-weight: 500; font-size: 13px; }
.tb-table th, .tb-table td { border-color: var(--line) !important; padding: 6px 8px !important;
  height: 36px !important; }
.tb-table td { font-size: 14px; max-width: 320px; overflow: hidden; white-space: normal;
  font-variant-numeric: tabular-nums; }
.tb-table th { white-space: normal; }
.tb-table td > span:first-child { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3;
  overflow: hidden; }
.tb-table td.text-right > span:first-child, .tb-table td[data-column=_changed] > span,
.tb-table td.time > span { display: inline; white-space: nowrap; }
.tb-table td.loose { overflow-wrap: anywhere; min-width: 110px; }
.tb-table.many th, .tb-table.many td { padding: 4px 6px !important; font-size: 12px; }
.tb-table.many td { overflow-wrap: anywhere; }
.tb-table.many td > span { white-space: normal !important; }
.tb-table td.nothing span { color: var(--soft); opacity: 0.6; }
.tb-latency { color: var(--good); font-size: 12px; margin-left: 8px; }
.tb-table tr.arrived td { animation: tb-arrived 1.6s ease-out; }
@keyframes tb-arrived { from { background: var(--arrived); } }
.tb-filters-button { display: none; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.tb-unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
@media (max-width: 900px) {
  .nicegui-content { padding: 12px; gap: 12px; }
  .tb-search { max-width: none; flex-basis: 100%; margin-left: 0; }
  .tb-body { grid-template-columns: minmax(0, 1fr); gap: 12px; }
  .tb-filters-button { display: inline-block; border: 1px solid var(--line); border-radius: 6px; padding: 6px 16px; }
  .tb-facets { display: none; }
  .tb-facets.shown { display: flex; }
  .tb-stats { gap: 8px; }
  .tb-stats .tb-card { padding: 10px 12px; }
  .tb-number { font-size: 20px; }
}
@media (max-width: 600px) {
  .tb-bars { height: 80px; }
  .tb-table thead { display: none; }
  .tb-table tbody { display: block; }
  .tb-table table { display: block; white-space: normal; }
  .tb-table tbody tr { display: block; height: auto !important; border-bottom: 1px solid var(--line); padding: 8px 0; }
  .tb-table tbody td { display: flex; justify-content: space-between; gap: 16px; border: 0 !important;
    height: auto !important; padding: 3px 4px !important; max-width: none; white-space: normal; overflow-wrap: anywhere;
    text-align: right !important; }
  .tb-table tbody td::before { content: attr(data-heading); color: var(--soft); flex: none; position: static !important;
    background: none !important; }
  .tb-table tbody td:first-child { font-weight: 500; }
  .tb-table tbody td > span:first-of-type { margin-left: auto; }
  .tb-table tbody td > .tb-latency { margin-left: 0; }
  .tb-stats .tb-note, .tb-hint { display: none; }
}
@media (prefers-reduced-motion: reduce) { .tb-table tr.arrived td { animation: none; } }
"""
