// The latency of every candidate as stacked columns.

function latencyCard() {
  const state = { order: "depth", all: false };
  const host = el("div", { class: "chart" });
  const note = el("p", { class: "about" });
  const shown = () => {
    const rows = [...(state.all ? candidates : best)];
    return rows.sort(
      state.order === "depth" ? byDepth : (a, b) => a.total - b.total || a.index - b.index,
    );
  };
  const view = responsive(host, (width) => drawLatency(shown(), width, note));
  const rest = candidates.length - best.length;
  const controls = el(
    "div",
    { class: "controls" },
    choice(
      "Order",
      [
        ["depth", "by depth"],
        ["latency", "by latency"],
      ],
      state.order,
      (value) => {
        state.order = value;
        view.again();
      },
    ),
    rest > 0
      ? choice(
          "Which",
          [
            [false, `best of each cut (${best.length})`],
            [true, `all (${digits(candidates.length, 0)})`],
          ],
          state.all,
          (value) => {
            state.all = value;
            view.again();
          },
        )
      : null,
  );
  const columns = [
    "candidate",
    ...PARTS.map((part) => `${part.name}#`),
    "latency#",
    "95th percentile#",
    "breaks",
  ];
  const rows = () =>
    shown().map((one) => [
      one.id,
      ...one.parts.map(time),
      time(one.total),
      time(one.p95),
      one.breaks.join("; "),
    ]);
  return card(
    "latency",
    "Latency of each candidate",
    "Where the median time goes, one column for each candidate. A column below a line is faster than that baseline; pale ones break a constraint.",
    controls,
    explain(host),
    legend(),
    note,
    dataTable(columns, rows),
  );
}

// The axis ends where most columns do: a few that are far higher must not flatten the others.
function latencyTop(rows) {
  const totals = rows.map((one) => one.total);
  const highest = Math.max(...totals);
  const usual = Math.max(1.6 * median(totals, 0.75), 1.15 * chosen.total);
  return highest > 1.25 * usual ? usual : highest;
}

function drawLatency(rows, width, note) {
  const top = latencyTop(rows);
  const height = width < 600 ? 300 : 360;
  const box = { top: 26, bottom: height - 48, left: 0 };
  const axisWidth = 58;
  const step = Math.min(110, Math.max(3, (width - axisWidth - 4) / rows.length));
  box.right = step * rows.length;
  const y = scale([0, top], box.bottom, box.top, { log: false });
  const highest = box.top - 4;
  const columns = rows.map((one, at) => column(one, at * step, step, y, highest));
  const over = rows.filter((one) => y(one.total) < highest).length;
  const away = baselines.filter(({ one }) => one !== chosen && y(one.total) < box.top);
  note.textContent = [
    ...away.map(
      ({ placement, one }) => `Above the chart: ${PLACEMENTS[placement]}, ${time(one.total)}.`,
    ),
    over
      ? `${plural(over, "column")} (▲) ${over === 1 ? "is" : "are"} cut off at the top; the data below has ${over === 1 ? "it" : "them"} in full.`
      : "",
  ].join(" ");
  const grid = mark("g", { class: "axes", "aria-hidden": "true" });
  const labels = mark(
    "g",
    { class: "axes", "aria-hidden": "true" },
    mark("text", { class: "name", x: 2, y: 11 }, "latency"),
  );
  for (const tick of y.ticks(6)) {
    grid.append(
      mark("line", {
        class: "grid",
        x1: 0,
        x2: Math.max(box.right, width - axisWidth - 4),
        y1: y(tick),
        y2: y(tick),
      }),
    );
    labels.append(
      mark("text", { x: axisWidth - 6, y: y(tick) + 4, "text-anchor": "end" }, trimmed(time(tick))),
    );
  }
  const names = mark(
    "g",
    { class: "axes", "aria-hidden": "true" },
    mark("line", { class: "axis", x1: 0, x2: box.right, y1: box.bottom, y2: box.bottom }),
  );
  columnNames(rows, step, box).forEach((name) => names.append(name));
  const lines = baselines
    .filter(({ one }) => one !== chosen)
    .map(({ placement, one }) => ({
      at: y(one.total),
      label: `${PLACEMENTS[placement]} ${time(one.total)}`,
      kind: placement,
    }));
  const title = `Latency of ${plural(rows.length, "candidate")}; the choice, ${chosen.id}, takes ${time(chosen.total)}`;
  // Lines go on to the right of a few columns; of many, their names stand where the page ends.
  const visible = width - axisWidth - 4;
  const across = { ...box, right: Math.max(box.right, visible), labelsRight: visible };
  const scroller = el(
    "div",
    { class: "scroll" },
    chart(
      across.right,
      height,
      title,
      grid,
      columns,
      references(across, lines),
      names,
      chosenFlag(rows, step, y, box),
    ),
  );
  // Where the chart is wider than the page, the choice is in view first.
  requestAnimationFrame(() => {
    scroller.scrollLeft = step * rows.indexOf(chosen) - width / 2;
  });
  return el(
    "div",
    { class: "split-axis" },
    chart(axisWidth, height, "Axis: latency", labels),
    scroller,
  );
}

function column(one, x, step, y, highest) {
  const gap = step > 6 ? 1.5 : step > 4 ? 0.75 : 0.4;
  const group = mark("g", { "data-i": one.index, class: one.keeps ? "column" : "column breaks" });
  let us = 0;
  one.parts.forEach((part, at) => {
    const bottom = y(us);
    us += part;
    const top = Math.max(highest, y(us));
    if (part <= 0 || bottom - top <= 0.05) return;
    group.append(
      mark("rect", {
        class: `p${at}`,
        x: x + gap / 2,
        width: step - gap,
        y: top,
        height: bottom - top,
      }),
    );
  });
  if (y(us) < highest) {
    const middle = x + step / 2;
    const half = Math.min(4, step / 2);
    group.append(
      mark("path", {
        class: "over",
        d: `M${middle - half} ${highest - 2}h${2 * half}l${-half} -6z`,
      }),
    );
  }
  // What is pointed at is the whole column, however low it is.
  group.append(mark("rect", { class: "hit", x, width: step, y: 0, height: y(0) }));
  return group;
}

function columnNames(rows, step, box) {
  const names = [];
  let last = -Infinity;
  let before = "";
  rows.forEach((one, at) => {
    const x = (at + 0.5) * step;
    const label = cutShort(
      one.placement === "split" ? one.cut.name : one.placement === "device" ? "device" : "input",
      10,
    );
    const half = 3.4 * label.length + 4;
    if (label === before || x - half < last || x + half > box.right + 8) return;
    before = label;
    last = x + half + 6;
    const anchor = x < half ? "start" : "middle";
    names.push(
      mark(
        "text",
        { x: anchor === "start" ? 0 : x, y: box.bottom + 22, "text-anchor": anchor },
        label,
      ),
    );
  });
  return names;
}

function chosenFlag(rows, step, y, box) {
  const at = rows.indexOf(chosen);
  if (at < 0) return null;
  const x = (at + 0.5) * step;
  const top = Math.max(box.top, y(chosen.total));
  const label = `chosen: ${cutShort(chosen.id, 28)}, ${time(chosen.total)}`;
  const wide = 1.06 * textWidth(label);
  const left = Math.max(0, Math.min(x - wide / 2, box.right - wide));
  return mark(
    "g",
    { class: "flag" },
    mark("rect", {
      class: step < 6 ? "outline thin" : "outline",
      x: at * step,
      width: step,
      y: top - 1,
      height: box.bottom - top + 1,
    }),
    mark("path", { class: "pointer", d: `M${x} ${box.bottom + 2}l5 8h-10z` }),
    mark("text", { x: left, y: box.bottom + 40 }, label),
  );
}
