// What was chosen, why, and against what.

function verdict() {
  const codec = chosen.codec || "raw";
  switch (chosen.placement) {
    case "device":
      return ["Stay on the device", "The whole model runs there; nothing is sent."];
    case "cloud_raw":
      return ["Send the raw input", "The service runs the whole model."];
    case "cloud_compressed":
      return [`Send the input as ${codec}`, "The service runs the whole model."];
    default:
      return [
        `Cut at ${chosen.cut.name}, send ${codec}`,
        `The device runs ${percent(chosen.depth)} of the work, the service the rest.`,
      ];
  }
}

const OBJECTIVES = {
  latency: ["median latency", "total"],
  "latency-p95": ["95th percentile of the latency", "p95"],
  energy: ["energy of the device", "energy"],
  bytes: ["bytes sent", "up"],
  "cloud-cost": ["cloud cost", "cost"],
  throughput: ["throughput", "rate"],
};
const perSecond = (rate) => `${short(rate)}${NBSP}/s`;
const [objectiveName, objectiveKey] = OBJECTIVES[plan.objective] || [plan.objective, "score"];
const objectiveFormat =
  objectiveKey === "rate"
    ? perSecond
    : (FIGURES.find((axis) => axis.key === objectiveKey) || { format: short }).format;

// How the choice compares with `other`: by the objective, more than 1 is in the choice's favour.
function gain(other, key = objectiveKey) {
  const [a, b] = key === "rate" ? [chosen.rate, other.rate] : [other[key], chosen[key]];
  return a === b ? 1 : b === 0 ? Infinity : a / b;
}
function gainText(other) {
  const value = gain(other, "total");
  if (!Number.isFinite(value)) return "";
  if (Math.abs(value - 1) < 0.005) return "as fast as the choice";
  return value > 1
    ? `the choice is ${ratio(value)}× as fast`
    : `${ratio(1 / value)}× as fast as the choice`;
}

function objectiveGain(other) {
  const value = gain(other);
  if (!Number.isFinite(value) || value === 0 || Math.abs(value - 1) < 0.005) return "";
  return `, ${ratio(objectiveKey === "rate" ? 1 / value : value)}× the choice's`;
}

function comparison() {
  const rows = [{ placement: chosen.placement, one: chosen }];
  rows.push(...baselines.filter(({ one }) => one !== chosen));
  // One that is far longer than all others is cut off, or nothing could be seen of them.
  const [longest, second] = rows.map(({ one }) => one.total).sort((a, b) => b - a);
  const full = second > 0 && longest > 5 * second ? 3 * second : longest;
  const bar = (one) =>
    el(
      "div",
      {
        class: one.total > full ? "bar over" : "bar",
        "data-i": one.index,
        role: "img",
        "aria-label": PARTS.map((part, at) => `${part.label} ${time(one.parts[at])}`).join(", "),
      },
      one.parts.map((us, at) =>
        us > 0 ? el("i", { class: `p${at}`, style: `flex:0 0 ${(100 * us) / full}%` }) : null,
      ),
    );
  const row = ({ placement, one }) =>
    el(
      "div",
      { class: one.chosen ? "versus chosen" : "versus", role: "listitem" },
      el(
        "div",
        { class: "who" },
        el(
          "span",
          { class: "kind" },
          one.chosen ? `Chosen: ${PLACEMENTS[placement]}` : PLACEMENTS[placement],
        ),
        el("span", { class: "muted id" }, cutShort(one.id, 40)),
      ),
      bar(one),
      el(
        "div",
        { class: "what" },
        el("b", {}, time(one.total)),
        el(
          "span",
          { class: "muted" },
          one.chosen
            ? one.measured
              ? `measured ${time(one.measured.total)}`
              : "predicted"
            : gainText(one),
        ),
        one.chosen || objectiveKey === "total"
          ? null
          : el(
              "span",
              { class: "muted" },
              `${objectiveName} ${objectiveFormat(one[objectiveKey])}${objectiveGain(one)}`,
            ),
        one.keeps
          ? null
          : el(
              "span",
              { class: "broken" },
              `breaks: ${one.breaks.map((b) => cutShort(b, 80)).join("; ")}`,
            ),
      ),
    );
  const absent = Object.keys(plan.baselines).filter((name) => plan.baselines[name] === null);
  return el(
    "div",
    {},
    el("div", { class: "comparison", role: "list" }, rows.map(row)),
    absent.length
      ? el(
          "p",
          { class: "muted" },
          `Not among the candidates: ${absent.map((name) => PLACEMENTS[name]).join("; ")}.`,
        )
      : null,
  );
}

function headline() {
  const [title, detail] = verdict();
  const fact = (name, value, sub) =>
    el(
      "div",
      { class: "fact" },
      el("dt", {}, name),
      el("dd", {}, value),
      sub ? el("dd", { class: "muted" }, sub) : null,
    );
  const facts = [
    fact("latency", time(chosen.total), `95th percentile ${time(chosen.p95)}`),
    fact("sent", bytes(chosen.up), `answer ${bytes(chosen.down)}`),
    fact("energy", energy(chosen.energy), "of the device, a request"),
    fact("cloud", money(chosen.cost), "for 1,000 requests"),
    fact("throughput", perSecond(chosen.rate), "of a stream of requests"),
  ];
  if (chosen.accuracy !== null)
    facts.push(
      fact(
        cutShort(plan.metric ? plan.metric.name : "accuracy", 28),
        figure(chosen.accuracy),
        plan.metric ? `whole model ${figure(plan.metric.baseline)}` : null,
      ),
    );
  if (chosen.leakage !== null)
    facts.push(fact("leakage", figure(chosen.leakage), "share of the input recovered"));
  if (chosen.memory !== null) facts.push(fact("memory", bytes(chosen.memory), "on the device"));
  const list = (texts) =>
    el(
      "ul",
      {},
      texts.map((line) => el("li", {}, line)),
    );
  return [
    el(
      "header",
      {},
      el("p", { class: "muted" }, "Seamline plan"),
      el("h1", {}, plan.model),
      el(
        "p",
        { class: "muted" },
        [
          `objective: ${objectiveName}`,
          `link: ${plan.link.name}`,
          `${plural(candidates.length, "candidate")} at ${plural(cuts.length, "cut")}`,
          plan.shapes.length
            ? plan.shapes.map(([name, size]) => `${name} = ${size}`).join(", ")
            : null,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
    el(
      "section",
      { id: "choice", class: "card lead", "aria-labelledby": "choice-title" },
      el("h2", { id: "choice-title" }, title),
      el("p", { class: "detail" }, detail),
      el("dl", { class: "facts" }, facts),
      explain(comparison()),
      legend(),
      plan.reason.length
        ? el("div", { class: "reason" }, el("h3", {}, "Why"), list(plan.reason))
        : null,
    ),
    plan.notes.length
      ? el(
          "aside",
          { id: "notes", class: "notes", "aria-label": "Notes" },
          el("h3", {}, "What to know"),
          list(plan.notes),
        )
      : null,
  ].filter(Boolean);
}

function legend() {
  return el(
    "div",
    { class: "legend", "aria-hidden": "true" },
    PARTS.map((part, at) => el("span", {}, el("i", { class: `swatch p${at}` }), part.label)),
  );
}
