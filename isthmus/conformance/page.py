"""report.html: the results in one page, with what draws them; it loads nothing."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from isthmus.conformance.judge import BINS

_FIELDS = "family library operator dtype case layout status message seconds worst histogram tolerance".split()


def render(data: dict[str, Any]) -> str:
    """The page of a report."""
    rows = [[row[name] for name in _FIELDS] for row in data["results"]]
    content = {
        **{key: value for key, value in data.items() if key != "results"},
        "bins": BINS,
        "fields": _FIELDS,
        "rows": rows,
    }
    # "<" is written so that no text of a kernel can end the script element.
    embedded = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    title = f"Conformance of {escape(str(data['driver']))}"
    return (
        _PAGE.replace("@TITLE@", title)
        .replace("@STYLE@", _STYLE)
        .replace("@SCRIPT@", _SCRIPT)
        .replace("@DATA@", embedded)
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>@STYLE@</style>
</head>
<body>
<h1>@TITLE@</h1>
<p id="verdict"></p>
<section id="about"></section>
<h2>Families</h2>
<div class="scroll"><table id="families"></table></div>
<h2>Errors, in units in the last place</h2>
<p class="note">Elements of all float results by their distance from the float64 reference. A correctly rounded
result is within 0.5; what exceeds it is allowed where a tolerance says so, with its reason in the case.</p>
<div id="plots"></div>
<h2>Operators</h2>
<p id="controls">
<input id="filter" type="search" placeholder="operator, dtype, case or message" aria-label="Filter">
<span id="statuses"></span> <span id="count"></span>
</p>
<div id="operators"></div>
<script type="application/json" id="data">@DATA@</script>
<script>@SCRIPT@</script>
</body>
</html>
"""

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a8a4a; --bad: #c9302c; --known: #b8860b; --none: #888;
  --bar: #4a7fb5; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .2rem .7rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } .note { opacity: .75; max-width: 50rem; }
#verdict { font-size: 1.15rem; font-weight: 600; }
.passed { color: var(--good); } .failed, .crashed { color: var(--bad); } .known { color: var(--known); }
.not { color: var(--none); }
#about { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
#about b { font-weight: 500; opacity: .7; }
#plots { display: flex; flex-wrap: wrap; gap: 1.5rem; } figure { margin: 0; } figcaption { font-weight: 500; }
svg text { font: 10px system-ui, sans-serif; fill: currentColor; } svg rect { fill: var(--bar); }
#filter { font: inherit; padding: .3rem .5rem; width: 22rem; max-width: 100%; }
#controls { position: sticky; top: 0; background: Canvas; padding: .5rem 0; }
details { border-bottom: 1px solid var(--line); padding: .15rem 0; } summary { cursor: pointer; }
summary code { font-weight: 600; } summary span { margin-left: .8rem; }
details .scroll { margin: .4rem 0 .8rem 1rem; } td.message { max-width: 40rem; }
"""

_SCRIPT = """
const data = JSON.parse(document.getElementById('data').textContent);
const cases = data.rows.map(row => Object.fromEntries(data.fields.map((name, i) => [name, row[i]])));
const statuses = ['passed', 'failed', 'crashed', 'known failure', 'not claimed'];
const bad = c => c.status === 'failed' || c.status === 'crashed';
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function count(list, key) {
  const found = new Map();
  for (const item of list) found.set(item[key], (found.get(item[key]) || 0) + 1);
  return found;
}
function group(list, key) {
  const found = new Map();
  for (const item of list) { if (!found.has(item[key])) found.set(item[key], []); found.get(item[key]).push(item); }
  return found;
}
const word = status => status.split(' ')[0];
function digits(x) {
  if (x === null) return 'not finite';
  return x !== 0 && (x < 0.01 || x >= 1e5) ? x.toExponential(1) : String(+x.toPrecision(3));
}

function worstOf(list) {
  const errors = list.filter(c => c.worst && c.status === 'passed').map(c => c.worst.ulps);
  return errors.length ? errors.reduce((a, b) => Math.max(a, b)) : null;
}
function addUp(list) {
  const total = new Array(data.bins.length + 1).fill(0);
  for (const c of list) c.histogram.forEach((n, i) => total[i] += n);
  return total;
}
function plot(total, width, height, labels) {
  const space = labels ? 26 : 0, step = width / total.length, top = Math.max(...total, 1);
  const shape = n => n ? Math.max(2, height * Math.log1p(n) / Math.log1p(top)) : 0;
  const names = data.bins.map(b => b ? '\\u2264' + b : '0').concat('more');
  const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('width', width); svg.setAttribute('height', height + space); svg.setAttribute('role', 'img');
  total.forEach((n, i) => {
    const bar = document.createElementNS(ns, 'rect');
    for (const [k, v] of Object.entries({x: i * step + 1, y: height - shape(n), width: step - 2, height: shape(n)}))
      bar.setAttribute(k, v);
    const title = document.createElementNS(ns, 'title');
    title.textContent = names[i] + ' ulp: ' + n.toLocaleString() + ' elements';
    bar.append(title); svg.append(bar);
    if (!labels) return;
    const text = document.createElementNS(ns, 'text');
    text.setAttribute('x', i * step + step / 2); text.setAttribute('y', height + 14);
    text.setAttribute('text-anchor', 'middle'); text.textContent = names[i]; svg.append(text);
  });
  return svg;
}
function showHead() {
  const counts = count(cases, 'status'), nothing = cases.every(c => c.status === 'not claimed');
  const failed = nothing || cases.some(bad) || data.stale.length > 0;
  const verdict = document.getElementById('verdict');
  verdict.className = failed ? 'failed' : 'passed';
  verdict.textContent = (failed ? 'Failed: ' : 'Passed: ') +
    statuses.filter(s => counts.get(s)).map(s => counts.get(s) + ' ' + s).join(', ') +
    (data.stale.length ? ', ' + data.stale.length + ' stale known failures' : '');
  const about = document.getElementById('about');
  const line = (name, value) => about.append(element('b', {}, name), element('span', {}, value));
  line('driver', data.driver + ' - ' + data.description + ' (' + data.device + ')');
  for (const lib of data.libraries || [])
    line('library', [lib.name + ' - ' + lib.description, Object.keys(lib.operators).length || 'all']
      .join(', ') + ' operators');
  line('judged through', data.through);
  if (data.golden) line('golden data', 'opset ' + data.golden.opset.slice(0, 16) + ', seed ' + data.golden.seed +
    (data.golden.coverage ? ' - ' + data.golden.coverage : ''));
  line('isthmus', data.isthmus);
  for (const [name, value] of Object.entries(data.environment)) line(name, value);
  if (data.mutation && data.mutation.score !== undefined)
    line('mutation score of the suite', typeof data.mutation.score === 'number'
      ? (100 * data.mutation.score).toFixed(1) + ' %' : String(data.mutation.score));
  for (const text of data.stale) line('stale known failure', text);
}
function showFamilies() {
  const table = document.getElementById('families');
  const head = ['family', 'operators', 'no kernel', ...statuses, 'worst ulp'];
  table.append(element('tr', {}, ...head.map((h, i) => element('th', i ? {class: 'number'} : {}, h))));
  const families = group(cases, 'family');
  for (const name of Object.keys(data.missing)) if (!families.has(name)) families.set(name, []);
  for (const [family, list] of [...families].sort()) {
    const counts = count(list, 'status'), absent = data.missing[family] || [];
    const row = element('tr', {}, element('td', {}, family));
    const number = (value, kind = '') => row.append(element('td', {class: 'number ' + kind}, String(value)));
    number(new Set(list.map(c => c.operator)).size); number(absent.length);
    row.lastChild.title = absent.join(', ');
    for (const s of statuses) number(counts.get(s) || 0, counts.get(s) ? word(s) : '');
    const worst = worstOf(list);
    number(worst === null ? '' : digits(worst));
    table.append(row);
  }
}
function showPlots() {
  const place = document.getElementById('plots');
  for (const [dtype, list] of group(cases.filter(c => c.histogram.length), 'dtype')) {
    const total = addUp(list), all = total.reduce((a, b) => a + b, 0);
    if (all) place.append(element('figure', {}, plot(total, 420, 90, true),
      element('figcaption', {}, dtype + ': ' + all.toLocaleString() + ' elements (log scale)')));
  }
}
function caseTable(list) {
  const table = element('table');
  const head = ['dtype', 'case', 'status', 'worst error', 'errors', 'tolerance', 'message', 'ms'];
  table.append(element('tr', {}, ...head.map(h => element('th', {}, h))));
  for (const c of list) {
    const w = c.worst, row = element('tr');
    const cell = (content, attributes = {}) => row.append(element('td', attributes, content));
    cell(c.dtype); cell(c.case); cell(c.status, {class: word(c.status)});
    cell(w ? digits(w.ulps) + ' ulp, ' + digits(w.tolerances) + ' x tolerance' : '');
    if (w) row.lastChild.title = w.output + '[' + w.index + '] is ' + w.got + ', reference ' + w.expected;
    cell(c.histogram.length ? plot(c.histogram, 66, 18, false) : '');
    cell(c.tolerance); cell(c.message, {class: 'message'}); cell((1000 * c.seconds).toFixed(1), {class: 'number'});
    table.append(row);
  }
  return element('div', {class: 'scroll'}, table);
}
function showOperators() {
  const text = document.getElementById('filter').value.toLowerCase().split(/\\s+/).filter(Boolean);
  const wanted = new Set(statuses.filter(s => document.getElementById('show ' + s).checked));
  const fits = c => wanted.has(c.status) &&
    text.every(t => (c.family + ' ' + c.library + ' ' + c.operator + ' ' + c.dtype + ' ' + c.case + ' ' + c.message)
      .toLowerCase().includes(t));
  const place = document.getElementById('operators'), shown = cases.filter(fits);
  place.replaceChildren();
  document.getElementById('count').textContent = shown.length + ' of ' + cases.length + ' cases';
  const operators = [...group(shown, 'operator')].sort((a, b) => b[1].some(bad) - a[1].some(bad));
  for (const [operator, list] of operators) {
    const counts = count(list, 'status'), worst = worstOf(list);
    const summary = element('summary', {}, element('code', {}, operator));
    for (const s of statuses) if (counts.get(s))
      summary.append(element('span', {class: word(s)}, counts.get(s) + ' ' + s));
    summary.append(element('span', {class: 'not'}, [...new Set(list.map(c => c.dtype))].join(' ')));
    if (worst !== null) summary.append(element('span', {}, 'worst ' + digits(worst) + ' ulp'));
    const details = element('details', {}, summary);
    details.addEventListener('toggle', () => {
      if (details.open && !details.querySelector('table')) details.append(caseTable(list));
    });
    place.append(details);
  }
}
for (const s of statuses) {
  const box = element('input', {type: 'checkbox', id: 'show ' + s, checked: ''});
  box.addEventListener('change', showOperators);
  document.getElementById('statuses').append(element('label', {class: word(s)}, box, s + ' '));
}
document.getElementById('filter').addEventListener('input', showOperators);
showHead(); showFamilies(); showPlots(); showOperators();
"""
