// Figures along the depth of the graph.

function depthChart(width, title, options) {
  const { axis, lines, log, zero } = options;
  const points = known(axis).filter((one) => !(log && one[axis.key] <= 0));
  const height = width < 500 ? 240 : options.height || 280;
  const box = { left: 62, right: width - 8, top: 22, bottom: height - 42 };
  const values = [...points.map((one) => one[axis.key]), ...lines.map((line) => line.value)];
  const place = (depth) => box.left + 6 + (box.right - box.left - 12) * depth;
  place.ticks = () => (width < 460 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]);
  const y = scale(values, box.bottom, box.top, { log: log || false, zero, isBytes: axis.isBytes });
  const along = points.filter((one) => isBest.has(one)).sort(byDepth);
  const path = along
    .map(
      (one, at) => `${at ? "L" : "M"}${place(one.depth).toFixed(1)} ${y(one[axis.key]).toFixed(1)}`,
    )
    .join("");
  const dot = (one, kind, r) =>
    mark("circle", {
      class: `dot ${kind}${one.keeps ? "" : " breaks"}`,
      "data-i": one.index,
      cx: place(one.depth).toFixed(1),
      cy: y(one[axis.key]).toFixed(1),
      r,
    });
  const others = points.filter((one) => !isBest.has(one));
  const marks = [
    mark(
      "g",
      { class: "faint" },
      others.map((one) => dot(one, "other", 2)),
    ),
    mark("path", { class: "along", d: path }),
    along.map((one) => dot(one, "best", along.length > 120 ? 2 : 2.8)),
  ];
  if (points.includes(chosen)) marks.push(dot(chosen, "chosen", 5.5));
  const names = {
    xName: "share of the work on the device",
    yName: axis.label,
    xFormat: percent,
    yFormat: axis.format,
  };
  return chart(
    width,
    height,
    title,
    axes(box, place, y, names),
    marks.flat(),
    references(
      box,
      lines.map((line) => ({ ...line, at: y(line.value) })),
    ),
  );
}

function depthCard(id, title, about, axis, options, ...more) {
  const points = known(axis);
  if (points.length === 0)
    return card(id, title, null, missing(axis.none || "No candidate has this figure."), ...more);
  const host = el("div", { class: "chart" });
  responsive(host, (width) => depthChart(width, title, { axis, lines: [], ...options }));
  const absent = candidates.filter(
    (one) => one[axis.key] === null && !(id === "leakage" && one.placement === "device"),
  ).length;
  const columns = ["candidate", "depth#", `${axis.label}#`];
  const rows = () => points.map((one) => [one.id, percent(one.depth), axis.format(one[axis.key])]);
  const key = keyOf(
    ["chosen", "chosen"],
    ["best", "best codec of each cut"],
    ...(candidates.length > best.length ? [["other filled", "its other codecs, and what breaks a constraint"]] : []),
  );
  return card(
    id,
    title,
    about,
    ...more,
    explain(host),
    key,
    absent > 0
      ? el(
          "p",
          { class: "about" },
          `${plural(absent, "candidate")} without this figure ${absent === 1 ? "is" : "are"} not drawn.`,
        )
      : null,
    dataTable(columns, rows),
  );
}

const figureOf = (key) => FIGURES.find((axis) => axis.key === key);

function payloadCard() {
  const lines = baselines
    .filter(({ one }) => one.up > 0)
    .map(({ placement, one }) => ({
      value: one.up,
      kind: placement,
      label: `${placement === "cloud_raw" ? "raw input" : `compressed input (${cutShort(one.codec || one.id, 16)})`} ${bytes(one.up)}`,
    }));
  return depthCard(
    "payload",
    "Payload along the graph",
    "Bytes sent for one request, on a logarithmic scale. Below the lines, a cut sends less than the input itself.",
    figureOf("up"),
    { lines, log: true, height: 372 },
  );
}

function accuracyCard() {
  const { metric, constraints } = plan;
  const lines = [];
  if (metric)
    lines.push({
      value: metric.baseline,
      label: `whole model ${figure(metric.baseline)}`,
      kind: "cloud_raw",
    });
  if (metric && constraints.accuracy_loss !== null) {
    const limit = metric.baseline + (metric.higher_is_better ? -1 : 1) * constraints.accuracy_loss;
    lines.push({ value: limit, label: `limit ${figure(limit)}`, kind: "limit" });
  }
  const about = metric
    ? `${metric.name} on ${plural(metric.samples, "input")}; ${metric.higher_is_better ? "more" : "less"} is better.`
    : null;
  return depthCard("accuracy", "Accuracy", about, figureOf("accuracy"), { lines, zero: false });
}

function memoryCard() {
  const limit = plan.constraints.device_memory;
  const lines =
    limit === null ? [] : [{ value: limit, label: `limit ${bytes(limit)}`, kind: "limit" }];
  return depthCard(
    "memory",
    "Memory on the device",
    "Resident, the head's weights included.",
    figureOf("memory"),
    { lines },
  );
}

function leakageCard() {
  const { attack, constraints } = plan;
  const lines = [];
  if (attack)
    lines.push({
      value: attack.at_input,
      label: `at the input itself ${figure(attack.at_input)}`,
      kind: "cloud_raw",
    });
  if (constraints.leakage !== null)
    lines.push({
      value: constraints.leakage,
      label: `limit ${figure(constraints.leakage)}`,
      kind: "limit",
    });
  const about = attack
    ? `Share of the input's variance that an attacker recovers from what is sent: 0 is a guess, 1 is all. Attack: ${attack.name}, trained on ${plural(attack.trained_on, "input")}, tried on ${plural(attack.tried_on, "other")}.`
    : null;
  const warning = el(
    "p",
    { class: "warning" },
    el("b", {}, "Splitting is not privacy. "),
    "Activations can be inverted. ",
    known(figureOf("leakage")).length === 0
      ? "That no figure is given says nothing about this cut. Encrypt the link, and send nothing that the service must not see."
      : "The figure says what this one attack recovered; a stronger attack may recover more, and what it does not recover is not thereby safe. Encrypt the link, and send nothing that the service must not see.",
  );
  return depthCard("leakage", "Leakage", about, figureOf("leakage"), { lines }, warning);
}
