// Two figures against each other: the Pareto plot, and predictions against measurements.

function paretoCard() {
  const usable = FIGURES.filter((axis) => known(axis).length > 0);
  const pick = (key, other) => (usable.some((axis) => axis.key === key) ? key : other);
  const state = {
    x: pick("total"),
    y: ["energy", "up", "cost"].includes(objectiveKey) ? objectiveKey : "up",
  };
  const host = el("div", { class: "chart" });
  const note = el("p", { class: "about" });
  const view = responsive(host, (width) =>
    drawPareto(width, figureOf(state.x), figureOf(state.y), note),
  );
  const select = (name, which) =>
    el(
      "label",
      {},
      `${name} `,
      el(
        "select",
        {
          onchange: (event) => {
            state[which] = event.target.value;
            view.again();
          },
        },
        FIGURES.map((axis) =>
          el(
            "option",
            {
              value: axis.key,
              selected: axis.key === state[which],
              disabled: !usable.includes(axis),
            },
            usable.includes(axis)
              ? cutShort(axis.label, 40)
              : `${cutShort(axis.label, 40)} (not measured)`,
          ),
        ),
      ),
    );
  const key = keyOf(
    ["chosen", "chosen"],
    ["pareto", "Pareto member: nothing else is as good in everything and better in something"],
    ["other", "beaten"],
    ["breaks", "breaks a constraint"],
  );
  const columns = ["candidate", "across#", "up#", "Pareto", "breaks"];
  const rows = () =>
    candidates
      .filter((one) => one.pareto)
      .map((one) => [
        one.id,
        figureOf(state.x).format(one[state.x] ?? 0),
        figureOf(state.y).format(one[state.y] ?? 0),
        "member",
        one.breaks.join("; "),
      ]);
  return card(
    "pareto",
    "Trade-offs",
    null,
    el("div", { class: "controls" }, select("across", "x"), select("up", "y")),
    explain(host),
    key,
    note,
    dataTable(columns, rows),
  );
}

// Which of `points` no other beats in both figures, from left to right.
function frontier(points, x, y) {
  const sign = (axis) => (axis.more ? -1 : 1);
  const sorted = [...points].sort(
    (a, b) =>
      sign(x) * (a[x.key] - b[x.key]) || sign(y) * (a[y.key] - b[y.key]) || a.index - b.index,
  );
  const front = [];
  for (const one of sorted) {
    const last = front[front.length - 1];
    if (!last || sign(y) * (one[y.key] - last[y.key]) < 0) front.push(one);
  }
  return front;
}

function drawPareto(width, x, y, note) {
  const points = candidates.filter((one) => one[x.key] !== null && one[y.key] !== null);
  const height = width < 600 ? 300 : 340;
  const box = { left: 66, right: width - 12, top: 22, bottom: height - 42 };
  const at = (axis, from, to) =>
    scale(
      points.map((one) => one[axis.key]),
      from,
      to,
      {
        zero: axis.key !== "accuracy",
        isBytes: axis.isBytes,
        log: axis.key === "accuracy" || axis.key === "leakage" ? false : undefined,
        wide: 10,
      },
    );
  const across = at(x, box.left + 6, box.right - 6);
  const up = at(y, box.bottom - 6, box.top + 6);
  const dot = (one, kind, r) =>
    mark("circle", {
      class: `dot ${kind}`,
      "data-i": one.index,
      cx: across(one[x.key]).toFixed(1),
      cy: up(one[y.key]).toFixed(1),
      r,
    });
  const cross = (one) => {
    const [cx, cy] = [across(one[x.key]), up(one[y.key])];
    return mark("path", {
      class: "cross",
      "data-i": one.index,
      d: `M${(cx - 3).toFixed(1)} ${(cy - 3).toFixed(1)}l6 6m0 -6l-6 6`,
    });
  };
  const keeping = points.filter((one) => one.keeps);
  const front = frontier(keeping, x, y);
  const line = front
    .map((one, index) => {
      const [cx, cy] = [across(one[x.key]).toFixed(1), up(one[y.key]).toFixed(1)];
      return index ? `H${cx}V${cy}` : `M${cx} ${cy}`;
    })
    .join("");
  const name = (axis, scaled) => `${axis.label}${scaled.log ? " (log)" : ""}`;
  const better = (axis) => (axis.more ? "more is better" : "less is better");
  const names = {
    xName: `${name(x, across)}, ${better(x)}`,
    yName: `${name(y, up)}, ${better(y)}`,
    xFormat: x.format,
    yFormat: y.format,
  };
  const members = keeping.filter((one) => one.pareto);
  const marks = [
    points.filter((one) => !one.keeps).map(cross),
    keeping.filter((one) => !one.pareto).map((one) => dot(one, "other", 2.4)),
    mark("path", { class: "front", d: line }),
    members.map((one) => dot(one, "pareto", 3.4)),
    points.includes(chosen) ? dot(chosen, "chosen", 6) : null,
  ]
    .flat()
    .filter(Boolean);
  const absent = candidates.length - points.length;
  note.textContent =
    `The line joins what nothing else beats in these two figures, ${plural(front.length, "candidate")}.` +
    (absent
      ? ` ${plural(absent, "candidate")} without one of them ${absent === 1 ? "is" : "are"} not drawn.`
      : "");
  return chart(
    width,
    height,
    `${x.label} against ${y.label} of ${plural(points.length, "candidate")}`,
    axes(box, across, up, names),
    marks,
  );
}

function measuredCard() {
  const points = candidates.filter((one) => one.measured && one.measured.total > 0);
  const title = "Predicted against measured";
  if (points.length === 0)
    return card(
      "measured",
      title,
      null,
      missing("No candidate was run: seamline plan --measure runs the best of them and compares."),
    );
  const errors = points.map((one) => Math.abs(one.total - one.measured.total) / one.measured.total);
  const host = el("div", { class: "chart" });
  responsive(host, (width) => drawMeasured(width, points));
  const columns = [
    "candidate",
    "predicted#",
    "measured#",
    "error#",
    "predicted p95#",
    "measured p95#",
    "requests#",
  ];
  const rows = () =>
    points.map((one) => [
      one.id,
      time(one.total),
      time(one.measured.total),
      `${one.total >= one.measured.total ? "+" : MINUS}${percent(Math.abs(one.total / one.measured.total - 1))}`,
      time(one.p95),
      time(one.measured.p95),
      digits(one.measured.requests, 0),
    ]);
  return card(
    "measured",
    title,
    `Median latency of ${plural(points.length, "candidate")} that ran. On the line, prediction and reality agree.`,
    el(
      "dl",
      { class: "facts small" },
      el(
        "div",
        { class: "fact" },
        el("dt", {}, "median error"),
        el("dd", {}, percent(median(errors))),
      ),
      el(
        "div",
        { class: "fact" },
        el("dt", {}, "90th percentile"),
        el("dd", {}, percent(median(errors, 0.9))),
      ),
    ),
    explain(host),
    dataTable(columns, rows),
  );
}

function drawMeasured(width, points) {
  const height = width < 600 ? 280 : 320;
  const box = { left: 66, right: width - 12, top: 22, bottom: height - 42 };
  const both = points.flatMap((one) => [one.total, one.measured.total]);
  const across = scale(both, box.left, box.right - 6);
  const up = scale(both, box.bottom, box.top + 6);
  const [low, high] = [across.log ? Math.min(...both) : 0, Math.max(...both)];
  const names = { xName: "predicted", yName: "measured", xFormat: time, yFormat: time };
  return chart(
    width,
    height,
    "Predicted against measured latency",
    axes(box, across, up, names),
    mark("line", {
      class: "reference same",
      x1: across(low),
      y1: up(low),
      x2: across(high),
      y2: up(high),
    }),
    points.map((one) =>
      mark("circle", {
        class: `dot ${one.chosen ? "chosen" : "pareto"}`,
        "data-i": one.index,
        cx: across(one.total).toFixed(1),
        cy: up(one.measured.total).toFixed(1),
        r: one.chosen ? 6 : 4,
      }),
    ),
  );
}
