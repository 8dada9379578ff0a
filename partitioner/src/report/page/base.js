// Elements, numbers with units, scales, axes, and the tooltip.

const SVG = "http://www.w3.org/2000/svg";

function fillIn(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  // Strings become text nodes, whatever stands in them.
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) =>
  fillIn(document.createElement(tag), attributes, children);
const mark = (tag, attributes, ...children) =>
  fillIn(document.createElementNS(SVG, tag), attributes, children);

const NBSP = "\u00a0";
const MINUS = "\u2212";
function digits(value, decimals) {
  const shown = Math.abs(value).toLocaleString("en-US", {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  });
  return value < 0 && Number(shown) !== 0 ? MINUS + shown : shown;
}
// Three significant digits, none lost before the point.
function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-4) return value.toExponential(1).replace("-", MINUS);
  return digits(value, Math.max(0, 2 - Math.floor(Math.log10(size) + 1e-9)));
}
// A figure as an axis or a setting has it: no zeros at its end.
const trimmed = (label) => label.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
function time(us) {
  if (us < 1000) return `${short(us)}${NBSP}µs`;
  return us < 1e6 ? `${short(us / 1e3)}${NBSP}ms` : `${short(us / 1e6)}${NBSP}s`;
}
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1023.5 && at + 1 < units.length) {
    count /= 1024;
    at += 1;
  }
  return `${at === 0 ? digits(count, 0) : short(count)}${NBSP}${units[at]}`;
}
function energy(joules) {
  return joules < 1 && joules > 0 ? `${short(joules * 1e3)}${NBSP}mJ` : `${short(joules)}${NBSP}J`;
}
const money = (usd) => `$${usd >= 1 || usd === 0 ? digits(usd, 2) : short(usd)}`;
const figure = (value) => digits(value, Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3);
const percent = (share) => `${digits(100 * share, share < 0.0995 && share > 0 ? 1 : 0)}${NBSP}%`;
const plural = (count, what) => `${digits(count, 0)} ${what}${count === 1 ? "" : "s"}`;
const ratio = (value) => (value < 10 ? digits(value, 2) : short(value));
const cutShort = (label, most) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);

function median(numbers, quantile = 0.5) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(quantile * (sorted.length - 1)))];
}

// Round steps for a linear axis from 0 or from `low`.
function linearTicks(low, high, most, isBytes) {
  const rough = (high - low) / Math.max(1, most) || 1;
  const base = isBytes ? 1024 ** Math.floor(Math.log(Math.max(rough, 1)) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(rough / base));
  const size = rough / base / power;
  const step = base * power * (size < 1.5 ? 1 : size < 3.5 ? 2 : size < 7.5 ? 5 : 10);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at += 1) {
    ticks.push(at * step);
  }
  return ticks;
}
function logTicks(low, high, most, isBytes) {
  const base = isBytes ? 4 : 10;
  const from = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
  const to = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
  if (!isBytes && to - from < 2) {
    // Within a decade or two: 1, 2 and 5 of each.
    const ticks = [];
    for (let power = from - 1; power <= to; power += 1) {
      for (const factor of [1, 2, 5]) {
        const tick = factor * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    }
    return ticks;
  }
  const every = Math.max(1, Math.ceil((to - from + 1) / Math.max(1, most)));
  const ticks = [];
  for (let power = from; power <= to; power += every) ticks.push(base ** power);
  return ticks;
}

// A scale from values to pixels. A logarithmic one has a place of its own for 0.
function scale(values, from, to, options = {}) {
  const positive = values.filter((value) => value > 0);
  const hasZero = values.some((value) => value <= 0);
  let low = Math.min(...(positive.length ? positive : [1]));
  let high = Math.max(...(positive.length ? positive : [1]));
  const log =
    positive.length > 0 &&
    (options.log ||
      (options.log !== false && high / low > (options.wide || 60) && values.every((v) => v >= 0)));
  if (log) {
    low /= 1.25;
    high *= 1.25;
    const start = hasZero ? from + Math.sign(to - from) * 26 : from;
    const width = Math.log(high / low);
    const place = (value) =>
      value <= 0
        ? from + Math.sign(to - from) * 6
        : start + ((to - start) * Math.log(value / low)) / width;
    const ticks = (most) => [
      ...(hasZero ? [0] : []),
      ...logTicks(low, high, most, options.isBytes),
    ];
    return Object.assign(place, { ticks, log });
  }
  low = Math.min(...values);
  high = Math.max(...values);
  if (options.zero !== false && low > 0) low = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  if (low !== 0) low -= room;
  high += room;
  const place = (value) => from + ((to - from) * (value - low)) / (high - low);
  return Object.assign(place, {
    ticks: (most) => linearTicks(low, high, most, options.isBytes),
    log,
  });
}

// About how wide bold text of a chart is.
const textWidth = (label) => 6.9 * [...label].length;

// An SVG with a title for those who do not see it.
function chart(width, height, title, ...children) {
  return mark(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": title,
    },
    ...children,
  );
}
function axes(box, x, y, labels) {
  const group = mark("g", { class: "axes", "aria-hidden": "true" });
  for (const tick of y.ticks(Math.max(4, Math.floor((box.bottom - box.top) / 44)))) {
    const at = y(tick);
    group.append(
      mark("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }),
      mark(
        "text",
        { x: box.left - 6, y: at + 4, "text-anchor": "end" },
        trimmed(labels.yFormat(tick)),
      ),
    );
  }
  let last = -Infinity;
  for (const tick of x.ticks(Math.max(2, Math.floor((box.right - box.left) / 90)))) {
    const at = x(tick);
    group.append(mark("line", { class: "grid", x1: at, x2: at, y1: box.top, y2: box.bottom }));
    const label = trimmed(labels.xFormat(tick));
    if (at - last < 7 * label.length) continue;
    last = at;
    const anchor = at > box.right - 14 ? "end" : "middle";
    group.append(
      mark(
        "text",
        { x: anchor === "end" ? box.right : at, y: box.bottom + 16, "text-anchor": anchor },
        label,
      ),
    );
  }
  group.append(
    mark("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    mark(
      "text",
      { class: "name", x: box.right, y: box.bottom + 34, "text-anchor": "end" },
      labels.xName,
    ),
    mark("text", { class: "name", x: 2, y: 11 }, labels.yName),
  );
  return group;
}
// Lines across a chart with their names, kept apart from one another.
function references(box, lines) {
  const group = mark("g", { class: "references" });
  const names = mark("g", {});
  const taken = [];
  for (const { at, label, kind } of [...lines].sort((a, b) => a.at - b.at)) {
    if (at < box.top - 1 || at > box.bottom + 1) continue;
    let y = at - 5;
    while (taken.some((other) => Math.abs(other - y) < 17)) y += 3;
    taken.push(y);
    const width = textWidth(label) + 8;
    const right = box.labelsRight ?? box.right;
    group.append(
      mark("line", { class: `reference ${kind}`, x1: box.left, x2: box.right, y1: at, y2: at }),
    );
    names.append(
      mark("rect", { class: "plate", x: right - width, y: y - 11, width, height: 15, rx: 3 }),
      mark("text", { class: `plated ${kind}`, x: right - 4, y, "text-anchor": "end" }, label),
    );
  }
  group.append(names);
  return group;
}

// One tooltip for all marks: whatever has data-i tells of that candidate.
const tip = document.getElementById("tip");
function explain(host) {
  const hide = () => {
    tip.hidden = true;
  };
  const show = (event) => {
    const target = event.target.closest("[data-i]");
    if (!target) return hide();
    tip.replaceChildren(...story(candidates[Number(target.getAttribute("data-i"))]));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - width - 8);
    const y =
      event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16;
    tip.style.transform = `translate(${Math.max(8, x)}px, ${Math.max(8, y)}px)`;
  };
  host.addEventListener("pointermove", show);
  host.addEventListener("pointerdown", show);
  host.addEventListener("pointerleave", hide);
  return host;
}
function story(one) {
  const values = one.cut.values.map((value) => cutShort(value, 48)).join(", ");
  const more =
    one.cut.count > one.cut.values.length
      ? ` and ${one.cut.count - one.cut.values.length} more`
      : "";
  const lines = [
    el("b", {}, one.id),
    one.chosen ? el("span", { class: "chip accent" }, "chosen") : null,
    el(
      "div",
      { class: "muted" },
      `${PLACEMENTS[one.placement]}, ${percent(one.depth)} of the work on the device`,
    ),
    values ? el("div", { class: "muted" }, `sends ${values}${more}`) : null,
  ];
  const rows = PARTS.map((part, at) => [part.label, one.parts[at], at])
    .filter(([, us]) => us > 0)
    .map(([label, us, at]) =>
      el(
        "tr",
        {},
        el("th", {}, el("i", { class: `swatch p${at}` }), label),
        el("td", {}, time(us)),
      ),
    );
  rows.push(el("tr", { class: "sum" }, el("th", {}, "latency"), el("td", {}, time(one.total))));
  for (const axis of FIGURES.slice(1)) {
    if (one[axis.key] !== null)
      rows.push(el("tr", {}, el("th", {}, axis.label), el("td", {}, axis.format(one[axis.key]))));
  }
  if (one.measured)
    rows.push(
      el("tr", {}, el("th", {}, "measured latency"), el("td", {}, time(one.measured.total))),
    );
  lines.push(el("table", {}, el("tbody", {}, rows)));
  for (const broken of one.breaks) lines.push(el("div", { class: "broken" }, `breaks: ${broken}`));
  return lines.filter(Boolean);
}

// Every chart of the page; main.js draws them once they stand in it.
const drawings = [];

// Draws into `host` at its width, and again where that changes.
function responsive(host, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.floor(host.clientWidth);
    if (now === 0 || now === width) return;
    width = now;
    host.replaceChildren(...[draw(width)].flat());
  };
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(host);
  drawings.push(redraw);
  return {
    again() {
      width = 0;
      redraw();
    },
  };
}

// A section of the page; `figures` gives the table behind its chart, made when it is opened.
function card(id, title, about, ...children) {
  return el(
    "section",
    { id, class: "card", "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title),
    about ? el("p", { class: "about" }, about) : null,
    ...children,
  );
}
function dataTable(columns, rows) {
  const details = el("details", { class: "data" }, el("summary", {}, "Data"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    details.append(el("div", { class: "scroll" }, table(columns, rows())));
  });
  return details;
}
// `columns`: names; a name that ends in `#` is of numbers.
function table(columns, rows) {
  const isNumber = columns.map((column) => column.endsWith("#"));
  const cell = (content, at) => el("td", isNumber[at] ? { class: "number" } : {}, content);
  return el(
    "table",
    { class: "plain" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        columns.map((column, at) =>
          el("th", { scope: "col", class: isNumber[at] && "number" }, column.replace(/#$/, "")),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) => el("tr", {}, row.map(cell))),
    ),
  );
}
// Buttons of which one is on.
function choice(label, options, current, change) {
  const buttons = options.map(([value, name]) =>
    el(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === current),
        onclick: (event) => {
          for (const button of buttons)
            button.setAttribute("aria-pressed", String(button === event.currentTarget));
          change(value);
        },
      },
      name,
    ),
  );
  return el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}
// What the marks of a chart mean.
const keyOf = (...entries) =>
  el(
    "p",
    { class: "key" },
    entries.map(([kind, meaning]) => el("span", {}, el("i", { class: `ring ${kind}` }), meaning)),
  );
const missing = (reason) => el("p", { class: "missing" }, reason);
