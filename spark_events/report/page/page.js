"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const NARROW = 720, LABEL = 230, LANE = 24, CHART = 130, AXIS = 22, TAIL_LABEL = 76, MIN_SPAN = 1000;
  const MORE = 200, NARROW_CARDS = 5;
  const STATES = ["running", "finished", "failed", "down", "overdue", "idle", "cancelled", "unknown", "no data"];
  const $ = (id) => document.getElementById(id);

  let data = JSON.parse($("data").textContent);
  const refresh = JSON.parse($("refresh").textContent);
  let view = null;      // [from, to] of the zoom; null: the whole period
  let chosen = null;    // key of the query whose charts are shown
  let utc = true;
  let words = [];
  let allCards = false; // whether a button or an address has shown the cards that did not fit
  const opened = new Map();  // detail tables that the user opened or closed

  // Elements. Text is always a text node: nothing of an event is ever parsed as HTML.
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

  // Numbers and times.
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  function parts(millis) {
    const time = new Date(millis), get = utc ? "getUTC" : "get";
    return { y: time[get + "FullYear"](), mo: time[get + "Month"]() + 1, d: time[get + "Date"](), h: time[get + "Hours"](),
      mi: time[get + "Minutes"](), s: time[get + "Seconds"]() };
  }
  function when(millis) {
    const p = parts(millis);
    return `${p.y}-${pad(p.mo)}-${pad(p.d)} ${pad(p.h)}:${pad(p.mi)}:${pad(p.s)}`;
  }
  const zone = () => (utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "local time");
  function span(millis) {
    if (millis === null || millis === undefined) return "–";
    if (millis < 1000) return `${Math.round(millis)} ms`;
    if (millis < 60000) return `${Math.floor(millis / 100) / 10} s`;
    const units = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
    const index = units.findIndex(([size]) => millis >= size);
    const [size, unit] = units[index], [smaller, name] = units[index + 1];
    const rest = Math.floor((millis % size) / smaller);
    return `${Math.floor(millis / size)} ${unit}` + (rest ? ` ${rest} ${name}` : "");
  }
  const count = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en"));
  const percent = (number) => (number === null || number === undefined ? "–" : `${Math.floor(number * 100) / 100} %`);
  function compact(number) {
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (number >= size) return `${+(number / size).toPrecision(3)}${unit}`;
    return `${+number.toPrecision(3)}`;
  }
  // Names may contain control and bidirectional characters, and be long.
  const clean = (text, most = 120) => {
    const shown = text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g,
      (found) => {
        const code = found.charCodeAt(0).toString(16);
        return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
      });
    return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
  };
  const subjects = () => [...data.applications, ...data.queries];
  const subject = (key) => subjects().find((one) => one.key === key);
  const matches = (...texts) => words.every((word) => texts.join("\n").toLowerCase().includes(word));
  // Queries of one name are those of several applications.
  const fullName = (one) => (subjects().some((other) => other !== one && other.kind === one.kind && other.name === one.name)
    ? `${one.application}/${one.name}` : one.name);
  const texts = (one) => [one.name, one.application, one.id, one.outcome];
  const width = () => $("plots").clientWidth;
  const narrow = () => width() < NARROW;
  const label = () => (narrow() ? 0 : LABEL);
  const whole = () => [data.since, Math.max(data.drawing.until, data.since + 1)];
  const range = () => view || whole();
  const scale = () => {
    const [from, to] = range(), left = label(), size = Math.max(10, width() - left - 8);
    return (millis) => left + ((millis - from) / (to - from)) * size;
  };

  // Tables.
  function table(columns, rows, more) {
    const head = el("tr", null, ...columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)));
    const body = rows.map(({ cells, ...attributes }) => el("tr", attributes, ...cells.map((cell, index) => {
      const [name, kind, field] = columns[index];
      const value = cell !== null && typeof cell === "object" && !(cell instanceof Node) ? cell : { text: cell };
      const shown = value.text === null || value.text === undefined ? "–" : value.text;
      const style = [kind, value.class, shown === "–" ? "empty" : null].filter(Boolean).join(" ");
      return el("td", { class: style || null, "data-label": name, "data-field": field, "data-value": value.value }, shown);
    })));
    const box = el("div", { class: "scroll" }, el("table", { class: "cards" }, el("thead", null, head), el("tbody", null, ...body)));
    return more > 0 ? el("div", null, box, el("p", { class: "hint" }, `${count(more)} more: spark-events report --json`)) : box;
  }
  const raw = (value, show) => ({ text: show(value), value: value === null || value === undefined ? null : value });

  function drawHead() {
    const unknown = data.drawing.until > data.until ? "; what happened since then is unknown" : "";
    const ends = { given: "", now: " (now)", "newest event": ` (the newest event${unknown})` }[data.until_is];
    $("period").textContent = `${when(data.since)} to ${when(data.until)} ${zone()}${ends} · ${count(data.events)} events`
      + (data.sla_ms === null ? "" : ` · SLA ${span(data.sla_ms)}`);
    $("zone").textContent = utc ? "Times: UTC" : `Times: ${zone()}`;
    $("zone").setAttribute("aria-pressed", String(!utc));
  }

  function drawFindings() {
    const line = (one) => el("li", { class: one.level },
      el("span", { class: "tag" }, one.level), el("span", null, local(one.text)));
    const number = data.problems.length;
    document.title = number ? `(${number}) Spark events report` : "Spark events report";
    $("status").textContent = data.status;
    $("status").className = data.is_wrong ? "wrong" : "good";
    $("stale").replaceChildren(...data.stale.map((one) => line({ level: one.running ? "error" : "note",
      text: `${one.source}: no event since ${utcWhen(one.newest)} (${span(one.age_ms)} ago); what happened since then is unknown.` })));
    if (data.ahead_events) $("stale").append(line({ level: "warning",
      text: `${count(data.ahead_events)} ${data.ahead_events === 1 ? "event is" : "events are"} dated in the future, by up to ${span(data.ahead_ms)}: a clock is wrong; they end no silence.` }));
    const cards = data.problems.filter((one) => matches(one.title, one.cause || "", one.application, one.name));
    const most = allCards ? cards.length : narrow() ? NARROW_CARDS : MORE;
    $("problems").replaceChildren(...cards.slice(0, most).map(problemCard));
    if (cards.length > most) $("problems").append(el("li", { class: "more" },
      el("button", { type: "button", onclick: () => drawAllCards(most) }, `${count(cards.length - most)} more`)));
    const now = data.findings.slice(number).filter((one) => one.now), earlier = data.findings.filter((one) => !one.now);
    $("now").replaceChildren(...now.slice(0, MORE).map(line));
    if (now.length > MORE) $("now").append(el("li", { class: "note" }, el("span"), el("span", null, `${count(now.length - MORE)} more`)));
    const box = $("earlier");
    box.hidden = !earlier.length;
    box.querySelector("summary").textContent = `In the whole period (${count(earlier.length)})`;
    box.querySelector("ul").replaceChildren(...earlier.slice(0, MORE).map(line));
    if (earlier.length > MORE) box.querySelector("ul").append(el("li", { class: "note" }, el("span"), el("span", null, `${count(earlier.length - MORE)} more`)));
    if (!data.is_wrong && earlier.length && !narrow()) box.open = true;
  }
  function drawAllCards(first) {
    allCards = true;
    drawFindings();
    $("problems").children[first]?.querySelector("button").focus();
  }
  function problemCard(one) {
    const id = `incident=${one.id}`;
    const facts = one.text.split("\n").slice(1).map((each) => each.trim().match(/^(\w+):\s*(.*)$/)).filter(Boolean)
      .filter(([, name]) => name !== "links" && name !== "next");
    const links = one.links.map((link) => el("a", { href: link.url, rel: "noopener noreferrer", target: "_blank" }, link.name));
    const copy = el("button", { type: "button", onclick: () => copyText(one.text, copy) }, "Copy as text");
    const key = one.subjects.find((each) => data.drawing.series[each]);
    return el("li", { class: `problem ${one.level}`, id, "data-kind": one.kind },
      el("h3", null, el("span", { class: "tag" }, one.kind), el("span", null, local(one.title))),
      el("dl", null, ...facts.flatMap(([, name, value]) => [el("dt", null, name), el("dd", null, local(value))])),
      el("p", { class: "actions" }, ...links, copy, el("a", { href: `#${id}` }, "Link to this"),
        key ? el("button", { type: "button", onclick: () => choose(key, true) }, "Charts") : null),
      el("code", null, one.command));
  }
  async function copyText(text, button) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without permission for the clipboard, select the text, so that the user can copy it.
      const area = el("textarea", { readonly: true }, text);
      button.after(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  }
  function showIncident() {
    for (const each of document.querySelectorAll(".problem.chosen")) each.classList.remove("chosen");
    const id = location.hash.startsWith("#incident=") ? decodeURIComponent(location.hash.slice(1)) : "";
    if (id && !$(id) && data.problems.some((one) => `incident=${one.id}` === id)) drawAllCards(0);
    const found = id && $(id);
    if (found) { found.classList.add("chosen"); found.scrollIntoView({ block: "center" }); }
  }
  function utcWhen(millis) {
    return new Date(millis).toISOString().slice(0, 19).replace("T", " ");
  }
  // Sentences hold times in UTC; show them in the chosen zone.
  const local = (text) => (utc ? text : text.replace(/\b(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b/g,
    (_, y, mo, d, h, mi, s) => when(Date.UTC(y, mo - 1, d, h, mi, s))));

  function outcome(one) {
    const style = { FAILED: "failed", LOST: "failed", UNKNOWN: "doubtful", CANCELLED: "doubtful", RUNNING: "good", SILENT: "doubtful" }[one.outcome];
    return { text: one.outcome, class: style, value: one.outcome };
  }
  function drawNumbers() {
    const columns = [["Name", null, "name"], ["Outcome", null, "outcome"], ["Uptime", "number", "uptime_percent"],
      ["Down", "number", "downtime_ms"], ["Runs", "number", "run_count"], ["Failed", "number", "failed_runs"],
      ["Restarts", "number", "restarts"], ["Failures", "number", "incidents"], ["Commits", "number", "commits"],
      ["p50", "number", "p50_ms"], ["p95", "number", "p95_ms"], ["p99", "number", "p99_ms"],
      ["Over SLA", "number", "over_sla"], ["Rows/s", "number", "rows_per_second"], ["Lag", "number", "lag_ms"]];
    const costs = [["Core-h", "core_hours"], ["Used", "core_hours_used"], ["Idle", "core_hours_idle"], ["Cost", "cost"]]
      .filter(([, field]) => subjects().some((one) => one[field] !== null));
    for (const [name, field] of costs) columns.push([name, "number", field]);
    const row = (one) => {
      const commits = one.commits || {}, number = (value, show) => raw(value === undefined ? null : value, show);
      const open = one.kind === "query" && one.commits
        ? el("button", { type: "button", class: "link", onclick: () => choose(one.key, true) }, clean(one.name)) : el("span", null, clean(one.name));
      const cells = [open, outcome(one), number(one.uptime_percent, percent),
        number(one.is_long_running ? one.downtime_ms : null, span), number(one.run_count, count), number(one.failed_runs, count),
        number(one.restarts, count), number(one.incidents, count),
        number(commits.events, count), number(commits.p50_ms, span), number(commits.p95_ms, span), number(commits.p99_ms, span),
        number(commits.over_sla, count), number(commits.rows_per_second, (value) => (value === null ? "–" : compact(value))),
        number(one.watermark && one.watermark.lag_ms, span)];
      for (const [, field] of costs) cells.push(number(one[field], (value) => (value === null ? "–" : value.toFixed(2))));
      return { class: one.kind, "data-key": one.key, "aria-selected": null, cells };
    };
    const all = ordered().filter((one) => matches(...texts(one)));
    const rows = all.length > 40 || narrow() ? [...all.filter(isFailing), ...all.filter((one) => !isFailing(one))] : all;
    $("numbers").replaceChildren(rows.length ? table(columns, rows.slice(0, narrow() ? 10 : 2 * MORE).map(row), rows.length - (narrow() ? 10 : 2 * MORE))
      : el("p", { class: "hint" }, "No application or query matches the search."));
  }
  // Each application is followed by its queries.
  function ordered() {
    const of = new Map();
    for (const one of data.queries) of.set(one.application, [...(of.get(one.application) || []), one]);
    const list = data.applications.flatMap((one) => [one, ...(of.get(one.name) || of.get(one.application) || [])]);
    const listed = new Set(list);
    return [...list, ...data.queries.filter((one) => !listed.has(one))];
  }

  // Timeline.
  // wall() returns the local clock time of an epoch time, both in milliseconds; timeOf() is the inverse.
  function wall(millis) {
    const p = parts(millis);
    return Date.UTC(p.y, p.mo - 1, p.d, p.h, p.mi, p.s);
  }
  function timeOf(shown) {
    const p = new Date(shown);
    return new Date(p.getUTCFullYear(), p.getUTCMonth(), p.getUTCDate(), p.getUTCHours(), p.getUTCMinutes(), p.getUTCSeconds()).getTime();
  }
  const STEPS = [1e3, 5e3, 15e3, 3e4, 6e4, 3e5, 9e5, 18e5, 36e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6];
  function ticks() {
    const [from, to] = range(), most = Math.max(2, Math.floor((width() - label()) / 110));
    const step = STEPS.find((size) => (to - from) / size <= most) || (to - from) / most;
    const list = [];
    if (!utc && step > 36e5) {
      // Step the local clock, because the day of a change of the clock has 23 or 25 hours.
      for (let at = Math.ceil(wall(from) / step) * step; timeOf(at) <= to; at += step) if (timeOf(at) >= from) list.push(timeOf(at));
      return [list, step];
    }
    const shift = utc ? 0 : new Date(from).getTimezoneOffset() * 60000;
    for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) list.push(at);
    return [list, step];
  }
  function tickText(millis, step) {
    const p = parts(millis);
    if (step >= 864e5) return `${p.y}-${pad(p.mo)}-${pad(p.d)}`;
    const clock = step < 6e4 ? `${pad(p.h)}:${pad(p.mi)}:${pad(p.s)}` : `${pad(p.h)}:${pad(p.mi)}`;
    return p.h === 0 && p.mi === 0 && p.s === 0 ? `${pad(p.mo)}-${pad(p.d)}` : clock;
  }
  function grid(height) {
    const x = scale();
    return ticks()[0].map((at) => svg("line", { class: "gridline", x1: x(at), x2: x(at), y1: 0, y2: height }));
  }
  function drawAxis() {
    const [list, step] = ticks(), x = scale(), most = width();
    // The part of the axis after the newest event of old data has a label.
    const [from, to] = range(), hasTail = data.drawing.until > data.until && to > data.until, right = most - (hasTail ? TAIL_LABEL : 20);
    const labels = list.filter((at) => x(at) < right).map((at) => svg("text", { x: x(at), y: 14, "text-anchor": x(at) < 20 ? "start" : "middle" }, tickText(at, step)));
    const name = label() ? [svg("text", { x: 0, y: 14 }, zone())] : [];
    const tail = hasTail ? [svg("text", { class: "tail", x: most - 8, y: 14, "text-anchor": "end" }, "no events")] : [];
    $("axis").replaceChildren(svg("svg", { width: most, height: AXIS, "aria-hidden": "true" }, ...name, ...labels, ...tail));
    $("window").textContent = view ? `${when(from)} to ${when(to)} (${span(to - from)})` : "";
    $("reset").disabled = !view;
  }

  function drawLegend() {
    const used = new Set(Object.values(data.drawing.lanes).flatMap((some) => some.map((one) => one[2])));
    const items = STATES.filter((state) => used.has(state)).map((state) => el("li", null,
      svg("svg", { width: 14, height: 12, "aria-hidden": "true" }, segment(state, 0, 14, 12)), state));
    const diamond = svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("path", { class: "marker", d: "M6 0L12 6L6 12L0 6Z" }));
    if (data.drawing.markers.length) items.push(el("li", null, diamond, "failure"));
    $("legend").replaceChildren(...items);
  }
  function segment(state, from, to, height, title) {
    const thin = state === "idle" || state === "overdue";
    const y = state === "overdue" ? 0 : state === "idle" ? height - 5 : 6;
    return svg("rect", { class: `s-${state.replace(" ", "-")}`, x: from, y: height < 15 ? 1 : y, width: Math.max(1.5, to - from), rx: 1,
      height: height < 15 ? height - 2 : thin ? 5 : height - 12 }, title ? svg("title", null, title) : null);
  }
  function drawLanes() {
    const x = scale(), [from, to] = range(), left = label(), lanes = [];
    const markers = new Map();
    for (const one of data.drawing.markers) if (one.last >= from && one.first <= to) markers.set(one.subject, [...(markers.get(one.subject) || []), one]);
    const all = ordered().filter((one) => data.drawing.lanes[one.key] && matches(...texts(one)));
    const isMany = all.length > (narrow() ? 12 : 40);
    const bad = isMany ? all.filter(isFailing) : all, good = isMany ? all.filter((one) => !isFailing(one)) : [];
    const most = narrow() ? 25 : MORE, healthy = [];
    for (const one of [...bad.slice(0, most), ...good]) {
      const line = data.drawing.lanes[one.key], isHealthy = good.includes(one);
      if (isHealthy && !$("healthy").open) continue;
      const shapes = line.filter(([start, end]) => end >= from && start <= to).map(([start, end, state, text]) =>
        segment(state, Math.max(left, x(Math.max(start, from))) - left, Math.min(width(), x(Math.min(end, to))) - left, LANE,
          `${state}: ${text}\n${when(start)} to ${when(end)} (${span(end - start)})`));
      const failures = clusters(markers.get(one.key) || [], x).map((some, index) => marker(one, some, x, left, index));
      const name = one.kind === "query" && one.commits
        ? el("button", { type: "button", title: clean(one.name, 300), onclick: () => choose(one.key, false), "aria-label": `Show the charts of query ${clean(one.name)}` }, clean(one.name))
        : el("span", { class: "name", title: clean(one.name, 300) }, clean(one.name));
      (isHealthy ? healthy : lanes).push(el("div", { class: `lane ${one.kind}`, "data-key": one.key },
        el("div", null, name, el("span", { class: "up" }, laneLabel(one))),
        svg("svg", { width: Math.max(10, width() - left), height: LANE, role: "group", "aria-label": `${one.kind} ${clean(one.name)}: ${one.outcome}` },
          svg("g", { transform: `translate(${-left},0)` }, ...grid(LANE)), ...shapes, ...failures)));
    }
    $("lanes").style.setProperty("--label", `${left}px`);
    const hidden = subjects().filter((one) => !data.drawing.lanes[one.key] && isFailing(one)).length;
    if (bad.length > most) lanes.push(el("p", { class: "hint" }, `${count(bad.length - most)} more with failures: use the search`));
    const box = $("healthy"), others = good.length + Math.max(0, subjects().filter((one) => !data.drawing.lanes[one.key] && !isFailing(one)).length);
    box.hidden = !good.length;
    box.querySelector("summary").textContent = `${count(others)} healthy`;
    box.querySelector("div").replaceChildren(...healthy);
    box.querySelector("div").style.setProperty("--label", `${left}px`);
    if (data.drawing.marker_ms) lanes.push(el("p", { class: "hint" }, `Many failures: those of one cause within ${span(data.drawing.marker_ms)} share a marker, at the first of them.`));
    if (hidden > 0) lanes.push(el("p", { class: "hint" }, `${count(hidden)} more without a lane: choose with --app or --query`));
    $("lanes").replaceChildren(hatch(), ...lanes);
  }
  // An uptime or a ratio says nothing of a single run, or of one that has not ended.
  function laneLabel(one) {
    if (one.outcome === "SILENT") return "silent";
    if (one.is_long_running) return one.uptime_percent === null ? one.outcome.toLowerCase() : percent(one.uptime_percent);
    const ended = one.runs.filter((run) => run.end !== null).length === one.runs.length ? one.run_count : one.run_count - 1;
    return ended > 1 ? `${ended - one.failed_runs - one.doubtful_runs}/${ended} ok` : one.outcome.toLowerCase();
  }
  const isFailing = (one) => one.failures.length > 0 || one.failed_runs > 0 || one.outcome === "SILENT"
    || data.problems.some((each) => each.subjects.includes(one.key));
  function hatch() {
    return svg("svg", { width: 0, height: 0, "aria-hidden": "true" }, svg("defs", null,
      svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { width: 2.5, height: 6, class: "s-failed" }))));
  }
  // Markers that would overlap are one marker with a number.
  function clusters(markers, x) {
    const list = [];
    for (const one of [...markers].sort((a, b) => a.first - b.first)) {
      const last = list[list.length - 1];
      if (last && x(one.first) - x(last[0].first) < 13) last.push(one); else list.push([one]);
    }
    return list;
  }
  function marker(one, some, x, left, index) {
    const [from] = range(), total = some.reduce((sum, each) => sum + each.count, 0);
    const at = Math.max(7, x(Math.max(some[0].first, from)) - left), y = LANE / 2;
    const cause = data.failures[some[0].group].cause;
    const text = `${count(total)} ${total === 1 ? "failure" : "failures"} of ${clean(one.name)}, ${when(some[0].first)}: ${cause.slice(0, 200)}`;
    const open = () => openMarker(one, some);
    return svg("g", null,
      svg("path", { class: "marker", d: `M${at} ${y - 7}L${at + 7} ${y}L${at} ${y + 7}L${at - 7} ${y}Z`, role: "button", "aria-label": text,
        tabindex: index ? -1 : 0, "data-count": total, onclick: open,
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); open(); return; }
          if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
          const all = [...event.target.closest("svg").querySelectorAll(".marker")];
          const next = all[all.indexOf(event.target) + (event.key === "ArrowRight" ? 1 : -1)];
          if (next) { event.preventDefault(); event.stopPropagation(); next.focus(); }
        } }, svg("title", null, text)),
      total > 1 ? svg("text", { class: "count", x: at + 9, y: y + 4 }, compact(total)) : null);
  }
  function openMarker(one, some) {
    const dialog = $("dialog"), times = new Map();
    for (const each of some) {
      const old = times.get(each.group) || { count: 0, first: each.first, last: each.last };
      times.set(each.group, { count: old.count + each.count, first: Math.min(old.first, each.first), last: Math.max(old.last, each.last) });
    }
    const body = [...times].sort((a, b) => b[1].count - a[1].count).slice(0, 20).flatMap(([index, here]) => [
      el("h3", null, `${count(here.count)} × here, ${when(here.first)}${here.last > here.first ? ` to ${when(here.last)}` : ""} ${zone()}`),
      ...failureBody(data.failures[index], true)]);
    if (times.size > 20) body.push(el("p", { class: "hint" }, `${count(times.size - 20)} more root causes: zoom in`));
    dialog.replaceChildren(el("h2", { id: "dialog-title" }, `Failures of ${one.kind} ${clean(one.name)}`), ...body,
      el("button", { type: "button", onclick: () => dialog.close() }, "Close"));
    dialog.showModal();
  }

  // Charts of one query.
  function choose(key, scroll) {
    chosen = key;
    drawCharts();
    if (scroll) $("h-timeline").scrollIntoView();
  }
  function drawCharts() {
    const keys = Object.keys(data.drawing.series);
    if (!keys.includes(chosen)) chosen = keys.sort((a, b) => subject(b).commits.over_sla - subject(a).commits.over_sla || subject(b).failures.length - subject(a).failures.length)[0] || null;
    $("chosen").replaceChildren(...ordered().filter((one) => keys.includes(one.key)).map((one) => el("option", { value: one.key, selected: one.key === chosen }, `${clean(one.name)} (${clean(one.application)})`)));
    document.querySelector(".pick").hidden = !chosen;
    const charts = [];
    const one = chosen && subject(chosen), all = one ? data.drawing.series[chosen] : [];
    const [from, to] = range(), step = data.drawing.bucket_ms, x = scale();
    const points = all.filter(([at]) => at + step >= from && at <= to);
    const middle = ([at]) => x(Math.min(data.until, at + step / 2));
    if (one) {
      const most = Math.max(data.sla_ms || 0, ...points.map((point) => point[4] || 0));
      charts.push(chart("Batch duration (median and range)", most, span, (y) => [
        ...runsOf(points).map((some) => svg("path", { class: "band", d: band(some, middle, (p) => y(p[2] || 0), (p) => y(p[4] || 0)) })),
        ...runsOf(points).map((some) => line(some, middle, (p) => y(p[3] || 0))),
        ...(data.sla_ms === null ? [] : [svg("line", { class: "sla", x1: label(), x2: width() - 8, y1: y(data.sla_ms), y2: y(data.sla_ms) }),
          svg("text", { class: "sla-label", x: width() - 10, y: y(data.sla_ms) - 4, "text-anchor": "end" }, `SLA ${span(data.sla_ms)}`)])]));
      const rated = points.filter((point) => point[5] !== null);
      charts.push(chart("Input rate (rows/s)", Math.max(0, ...rated.map((point) => point[5])), compact, (y) => runsOf(rated).map((some) => line(some, middle, (p) => y(p[5])))));
      const lagged = points.filter((point) => point[6] !== null);
      if (lagged.length) charts.push(chart("Watermark lag", Math.max(0, ...lagged.map((point) => point[6])), span, (y) => runsOf(lagged).map((some) => line(some, middle, (p) => y(p[6])))));
    }
    const app = one ? `a:${one.application}` : Object.keys(data.drawing.executors)[0];
    const steps = data.drawing.executors[app];
    if (steps && steps.length) charts.push(chart(`Executors of ${app.slice(2)}`, Math.max(1, ...steps.map((each) => each[2])), compact, (y) => {
      let path = "", last = null;
      for (const [at, low, high, after] of steps) {
        const here = Math.max(label(), Math.min(width() - 8, x(at)));
        path += last === null ? `M${here} ${y(after)}` : `L${here} ${y(last)}L${here} ${y(low)}L${here} ${y(high)}L${here} ${y(after)}`;
        last = after;
      }
      return [svg("path", { class: "median", d: `${path}L${Math.max(label(), Math.min(width() - 8, x(knownUntil(app))))} ${y(last)}` })];
    }));
    $("charts").replaceChildren(...charts);
  }
  // Nothing is known of an application after the beginning of the grey part of its lane.
  const knownUntil = (key) => Math.min(data.until, ...(data.drawing.lanes[key] || []).filter((one) => one[2] === "no data").map((one) => one[0]));
  function runsOf(points) {
    // Buckets can be shorter than the interval of regular batches, whose line has no gaps.
    const steps = points.slice(1).map((point, index) => point[0] - points[index][0]).sort((a, b) => a - b);
    const gap = 3 * Math.max(data.drawing.bucket_ms, steps[steps.length >> 1] || 0), list = [];
    for (const point of points) {
      const last = list[list.length - 1];
      if (last && point[0] - last[last.length - 1][0] <= gap) last.push(point); else list.push([point]);
    }
    return list;
  }
  function line(points, x, y) {
    if (points.length === 1) return svg("rect", { class: "s-finished", x: x(points[0]) - 1, y: y(points[0]) - 1, width: 3, height: 3 });
    return svg("path", { class: "median", d: points.map((point, index) => `${index ? "L" : "M"}${x(point).toFixed(1)} ${y(point).toFixed(1)}`).join("") });
  }
  function band(points, x, low, high) {
    const up = points.map((point) => `${x(point).toFixed(1)} ${high(point).toFixed(1)}`);
    const down = points.map((point) => `${x(point).toFixed(1)} ${low(point).toFixed(1)}`).reverse();
    return `M${up.join("L")}L${down.join("L")}Z`;
  }
  function chart(title, most, show, draw) {
    const top = narrow() ? 32 : 24, bottom = CHART - 8, left = label(), ceiling = nice(most);
    const y = (value) => bottom - (Math.min(value, ceiling) / ceiling) * (bottom - top);
    const lines = [0, ceiling / 2, ceiling].map((value) => svg("g", null,
      svg("line", { class: "gridline", x1: left, x2: width() - 8, y1: y(value), y2: y(value) }),
      value || left ? svg("text", { x: left ? left - 8 : 2, y: y(value) + (left ? 4 : -3), "text-anchor": left ? "end" : "start" }, show(value)) : null));
    const id = `clip-${title.length}`;
    return el("div", { class: "chart" }, svg("svg", { width: width(), height: CHART, role: "img", "aria-label": `${title}, at most ${show(most)}` },
      svg("clipPath", { id }, svg("rect", { x: left, y: 0, width: Math.max(1, width() - left - 8), height: CHART })),
      svg("text", { class: "title", x: left, y: 12 }, title), ...grid(CHART).map((each) => (each.setAttribute("y1", top), each)), ...lines,
      svg("g", { "clip-path": `url(#${id})` }, ...draw(y))));
  }
  function nice(value) {
    if (!(value > 0)) return 1;
    const units = value >= 60000 ? [60000, 120000, 300000, 600000, 1200000, 1800000, 3600000, 7200000, 14400000, 36000000, 86400000] : [];
    const found = units.find((unit) => unit >= value);
    if (found) return found;
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 4, 5, 8, 10].map((factor) => factor * power).find((each) => each >= value) || value;
  }

  // Failures and details.
  function failureBody(group, withCause) {
    const facts = [["Root cause", withCause ? group.cause : null], ["Type", group.error_type], ["Label", group.label], ["Class", group.failure_class],
      ["Retry", group.retry_useful === null ? null : group.retry_useful ? "may help" : "does not help"], ["Line", group.location],
      ["Times", `${count(group.count)} (${Object.entries(group.entities).map(([name, times]) => `${count(times)} ${name}`).join(", ")})${group.retried ? `, ${count(group.retried)} retried` : ""}`],
      ["First, last", `${when(group.first)}, ${when(group.last)} ${zone()}`], ["Applications", group.applications.join(", ")], ["Queries", group.queries.join(", ")]];
    const list = facts.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]);
    return [el("dl", null, ...list), group.stack ? el("pre", { tabindex: 0, "aria-label": "Stack trace" }, group.stack) : null];
  }
  function drawFailures() {
    const found = data.failures.filter((one) => matches(one.cause, one.error_type, one.location || "", one.applications.join(" "), one.queries.join(" ")));
    const most = narrow() ? 10 : MORE;
    const list = found.slice(0, most).map((one) => el("details", { class: "failure", "data-count": one.count },
      el("summary", null, `${count(one.incidents)} × ${one.cause.slice(0, 300)}`,
        el("span", { class: "times" }, `${[one.label, one.failure_class, one.location].filter(Boolean).map((text) => `${text} · `).join("")}${when(one.first)}${one.last > one.first ? ` to ${when(one.last)}` : ""}`)),
      ...failureBody(one, one.cause.length > 300)));
    if (!list.length) list.push(el("p", { class: "hint" }, data.failures.length ? "No failure matches the search." : "No failures."));
    if (found.length > most) list.push(el("p", { class: "hint" }, `${count(found.length - most)} more root causes: use the search`));
    $("failures").replaceChildren(...list);
    $("h-failures").textContent = `Failures by root cause (${count(data.failures.length)})`;
  }
  function drawSlow() {
    const columns = [["Stage"], ["Application"], ["Lost", "number", "lost_ms"], ["Took", "number", "duration_ms"], ["End", "fixed"], ["Problems", "wide"]];
    const reasons = (one) => one.problems.map(([kind, text]) => `${kind}: ${text}`).join("; ");
    const rows = data.slow_stages.filter((one) => matches(one.application, one.name, one.text)).map((one) => ({ "data-stage": one.stage, cells: [
      `${one.stage}${one.attempt ? `, attempt ${one.attempt}` : ""} [${one.name}]`, one.application,
      raw(one.lost_ms || null, span), raw(one.duration_ms, span), when(one.at), reasons(one)] }));
    $("slow-section").hidden = !data.slow_stages.length;
    $("slow").replaceChildren(rows.length ? table(columns, rows, data.slow_stage_count - data.slow_stages.length)
      : el("p", { class: "hint" }, "No stage matches the search."));
  }

  function drawDetails() {
    const boxes = [];
    // The page contains only some rows of long lists; `total` is the number of all rows.
    const add = (title, columns, rows, total = rows.length) => {
      const found = rows.filter((row) => matches(...row.map((cell) => (cell === null || cell === undefined ? "" : String(cell)))));
      const open = opened.has(title) ? opened.get(title) : found.length <= 10 && title !== "Runs" && !narrow();
      if (found.length) boxes.push(el("details", { class: "box", open, ontoggle: (event) => opened.set(title, event.target.open) },
        el("summary", null, `${title} (${words.length ? count(found.length) : count(total)}${words.length && total > rows.length ? ` of the ${count(rows.length)} on this page` : ""})`),
        table(columns, found.slice(0, MORE).map((cells) => ({ cells })), (words.length ? found.length : total) - Math.min(found.length, MORE))));
    };
    const sum = (number) => subjects().reduce((total, one) => total + number(one), 0);
    const each = (list, row) => subjects().flatMap((one) => {
      const items = list(one), name = items.length ? clean(fullName(one)) : "";
      return items.map((item) => [name, ...row(item, one)]);
    });
    add("Downtime", [["Name"], ["From", "fixed"], ["To", "fixed"], ["Duration", "number"], ["Cause", "wide"]], each((one) => one.downtimes, (down) =>
      [when(down.start), down.ongoing ? "still down" : when(down.end), span(down.end - down.start), down.cause]), sum((one) => one.downtime_count));
    add(data.sla_ms === null ? "Slow commits (severity WARN)" : "Commits over the SLA", [["Query"], ["Time", "fixed"], ["Batch", "number"], ["Duration", "number"], ["Rows", "number"]],
      each((one) => (one.commits ? one.commits.slow : []), (slow) => [when(slow.at), slow.batch_id === null ? "–" : String(slow.batch_id), span(slow.duration_ms), count(slow.rows)]),
      sum((one) => (one.commits ? one.commits.over_sla : 0)));
    add("Overdue", [["Name"], ["Work"], ["From", "fixed"], ["To", "fixed"], ["Limit", "number"], ["Place", "wide"]], each((one) => one.overdue, (work) =>
      [`${work.what} (${work.rule})`, when(work.start), work.end === null ? "still overdue" : when(work.end), span(work.limit_ms), work.place || "–"]), sum((one) => one.overdue_count));
    add("Idle", [["Query"], ["Source"], ["Times", "number"], ["Total", "number"], ["Since", "fixed"]], each((one) => one.idle, (idle) =>
      [idle.source, count(idle.times), span(idle.total_ms), idle.ongoing_since === null ? "–" : when(idle.ongoing_since)]), sum((one) => one.idle_count));
    add("Enrichment", [["Name"], ["Function"], ["Batches", "number"], ["Calls", "number"], ["Retries", "number"], ["Timeouts", "number"], ["No answer", "number"], ["p99 (highest)", "number"]],
      each((one) => one.enrichment, (each) => [each.function, count(each.batches), count(each.calls), count(each.retries), count(each.timeouts), count(each.unanswered_rows), span(each.p99_ms)]));
    add("Executors lost", [["Application"], ["Reason"], ["Times", "number"]], each((one) => one.executors_lost, ([loss, times]) => [loss, count(times)]));
    add("Records and events lost", [["Application"], ["Where"], ["Reason"], ["Number", "number"]], data.lost.map((one) => [one.application, one.where, one.reason, count(one.count)]));
    add("Runs", [["Name"], ["Status", "fixed"], ["From", "fixed"], ["To", "fixed"], ["Run", "wide"], ["Cause", "wide"]], each((one) => one.runs, (run) =>
      [run.status, (run.start_known ? "" : "before ") + when(run.start), run.end === null ? "running" : when(run.end), run.id, run.cause || "–"]), sum((one) => one.run_count));
    if (!boxes.length) boxes.push(el("p", { class: "hint" }, "Nothing to show."));
    $("details").replaceChildren(...boxes);
  }
  function drawNotes() {
    const notes = [...data.notes];
    if (data.duplicates) notes.push(`${count(data.duplicates)} events occurred more than once and count once.`);
    $("notes").replaceChildren(...notes.map((note) => el("li", null, local(note))));
    $("sources").replaceChildren(table([["Source"], ["Kind"], ["Events", "number"]],
      data.sources.slice(0, MORE).map((one) => ({ cells: [one.source, one.kind, count(one.events)] })), data.sources.length - MORE));
  }

  // Zoom.
  function zoom(from, to) {
    const [least, most] = whole();
    const size = Math.min(most - least, Math.max(MIN_SPAN, to - from));
    const start = Math.min(Math.max(least, from), most - size);
    view = size >= most - least ? null : [start, start + size];
    drawPlots();
  }
  function drawPlots() { drawAxis(); drawLanes(); drawCharts(); }
  const timeAt = (x) => {
    const [from, to] = range(), left = label(), size = Math.max(10, width() - left - 8);
    return from + (Math.min(Math.max(x - left, 0), size) / size) * (to - from);
  };
  function brushing() {
    const plots = $("plots"), brush = $("brush"), cursor = $("cursor"), tip = $("tip");
    let start = null;
    const at = (event) => event.clientX - plots.getBoundingClientRect().left;
    plots.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest("button, select, summary, .marker, .pick") || at(event) < label()) return;
      start = at(event);
      plots.setPointerCapture(event.pointerId);
    });
    plots.addEventListener("pointermove", (event) => {
      const here = at(event);
      if (start !== null) {
        Object.assign(brush.style, { left: `${Math.min(start, here)}px`, width: `${Math.abs(here - start)}px`, top: "0", bottom: "0" });
        brush.hidden = Math.abs(here - start) < 4;
      }
      const inside = here >= label() && !event.target.closest(".pick");
      cursor.hidden = tip.hidden = !inside;
      if (inside) {
        Object.assign(cursor.style, { left: `${here}px`, top: "0", bottom: "0" });
        tip.textContent = tipText(timeAt(here));
        const right = event.clientX + 340 > window.innerWidth;
        Object.assign(tip.style, { left: right ? "auto" : `${event.clientX + 14}px`, right: right ? `${Math.max(4, window.innerWidth - event.clientX + 14)}px` : "auto", top: `${Math.min(event.clientY + 14, window.innerHeight - 120)}px` });
      }
    });
    const stop = (event) => {
      if (start === null) return;
      const from = Math.min(start, at(event)), to = Math.max(start, at(event));
      start = null;
      brush.hidden = true;
      if (event.type === "pointerup" && to - from >= 4) zoom(timeAt(from), timeAt(to));
    };
    plots.addEventListener("pointerup", stop);
    plots.addEventListener("pointercancel", stop);
    plots.addEventListener("pointerleave", () => { cursor.hidden = tip.hidden = true; });
    plots.addEventListener("dblclick", () => { view = null; drawPlots(); });
    plots.addEventListener("keydown", (event) => {
      if (event.target !== plots || event.ctrlKey || event.metaKey || event.altKey) return;
      const [from, to] = range(), size = to - from, mid = (from + to) / 2;
      const moves = { ArrowLeft: [from - size / 4, to - size / 4], ArrowRight: [from + size / 4, to + size / 4],
        "+": [mid - size / 4, mid + size / 4], "=": [mid - size / 4, mid + size / 4], "-": [mid - size, mid + size],
        0: whole(), Escape: whole() };
      if (!moves[event.key]) return;
      event.preventDefault();
      zoom(...moves[event.key]);
    });
  }
  function tipText(time) {
    const lines = [`${when(time)} ${zone()}`];
    const points = chosen ? data.drawing.series[chosen] || [] : [];
    const point = points.find(([at]) => time >= at && time < at + data.drawing.bucket_ms);
    if (point) {
      lines.push(`${subject(chosen).name}: ${count(point[1])} ${point[1] === 1 ? "commit" : "commits"}`);
      if (point[3] !== null) lines.push(`duration ${span(point[2])} / ${span(point[3])} / ${span(point[4])}`);
      lines.push((point[5] === null ? "" : `${compact(point[5])} rows/s`) + (point[6] === null ? "" : `, lag ${span(point[6])}`));
    }
    return lines.join("\n");
  }

  function drawAll() { drawHead(); drawFindings(); drawNumbers(); drawLegend(); drawPlots(); drawFailures(); drawSlow(); drawDetails(); drawNotes(); }
  function controls() {
    $("zone").addEventListener("click", () => { utc = !utc; drawAll(); });
    window.addEventListener("hashchange", showIncident);
    $("healthy").addEventListener("toggle", drawLanes);
    $("reset").addEventListener("click", () => { view = null; drawPlots(); });
    $("chosen").addEventListener("change", (event) => choose(event.target.value, false));
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    $("search").addEventListener("input", (event) => {
      words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      drawFindings(); drawNumbers(); drawLanes(); drawFailures(); drawSlow(); drawDetails();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.target.closest("input, select, textarea")) { event.preventDefault(); $("search").focus(); }
    });
    let timer = null, seen = width();
    new ResizeObserver(() => {
      if (width() === seen) return;
      seen = width();
      clearTimeout(timer);
      timer = setTimeout(drawPlots, 60);
    }).observe($("plots"));
    let closed = [];
    window.addEventListener("beforeprint", () => {
      closed = [...document.querySelectorAll("details:not([open])")];
      closed.forEach((each) => { each.open = true; });
    });
    window.addEventListener("afterprint", () => { closed.forEach((each) => { each.open = false; }); });
  }
  function live() {
    setInterval(async () => {
      const trouble = $("trouble");
      try {
        const answer = await fetch("data.json");
        const text = await answer.text();
        if (!answer.ok) throw new Error(text);
        data = JSON.parse(text);
        trouble.hidden = true;
        drawAll();
      } catch (error) {
        trouble.textContent = `Not up to date: ${error.message}. The next attempt is in ${refresh} s.`;
        trouble.hidden = false;
      }
    }, refresh * 1000);
  }
  controls();
  drawAll();
  showIncident();
  brushing();
  if (refresh) live();
})();
