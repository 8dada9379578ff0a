// The plan's figures, unpacked, and what every chart asks of them.

const plan = JSON.parse(document.getElementById("plan-data").textContent);

// Parts of a latency in the order of a request; `side` says who works.
const PARTS = [
  { name: "edge", label: "head on the device" },
  { name: "encode", label: "encode" },
  { name: "send", label: "send" },
  { name: "queue", label: "queue" },
  { name: "decode", label: "decode" },
  { name: "tail", label: "tail in the service" },
  { name: "answer", label: "answer" },
  { name: "overhead", label: "overhead" },
];

const PLACEMENTS = {
  device: "device only",
  cloud_raw: "cloud only, raw input",
  cloud_compressed: "cloud only, compressed input",
  split: "split",
};
const PLACEMENTS_SHORT = {
  device: "device",
  cloud_raw: "cloud, raw",
  cloud_compressed: "cloud, compressed",
  split: "split",
};

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const text = (index) => (index === null ? null : plan.texts[index]);

const cuts = plan.cuts.map(([name, depth, values, count]) => ({ name, depth, values, count }));

const candidates = plan.candidates.map((row, index) => {
  const one = Object.fromEntries(plan.columns.map((column, at) => [column, row[at]]));
  one.index = index;
  one.cutIndex = one.cut;
  one.cut = cuts[one.cut];
  one.depth = one.cut.depth;
  one.codec = text(one.codec);
  one.precision = text(one.precision);
  one.breaks = one.breaks.map(text);
  one.keeps = one.breaks.length === 0;
  one.total = sum(one.parts);
  one.chosen = index === plan.chosen;
  if (one.leakage) one.psnr = one.leakage[1];
  one.leakage = one.leakage ? one.leakage[0] : null;
  if (one.measured) {
    const [parts, p95, requests] = one.measured;
    one.measured = { parts, p95, requests, total: sum(parts) };
  }
  return one;
});

const chosen = candidates[plan.chosen];
const baselines = Object.entries(plan.baselines)
  .filter(([, index]) => index !== null)
  .map(([placement, index]) => ({ placement, one: candidates[index] }));

// Of each cut the choice, else the best that keeps the constraints, else the best.
const best = (() => {
  const better = (a, b) =>
    b.chosen - a.chosen || b.keeps - a.keeps || a.score - b.score || a.index - b.index;
  const found = new Map();
  for (const one of candidates) {
    const known = found.get(one.cutIndex);
    if (!known || better(one, known) < 0) found.set(one.cutIndex, one);
  }
  return [...found.values()];
})();
const isBest = new Set(best);
const byDepth = (a, b) => a.depth - b.depth || a.index - b.index;

// What a candidate can be compared by. `none` says why nothing has the figure.
const noCalibration = "It needs calibration data: plan with --calibration DIR.";
const FIGURES = [
  { key: "total", label: "latency, median", format: (v) => time(v) },
  { key: "p95", label: "latency, 95th percentile", format: (v) => time(v) },
  { key: "energy", label: "energy of the device", format: (v) => energy(v) },
  { key: "up", label: "bytes sent", format: (v) => bytes(v), isBytes: true },
  { key: "cost", label: "cloud cost per 1,000 requests", format: (v) => money(v) },
  {
    key: "accuracy",
    label: plan.metric ? plan.metric.name : "accuracy",
    format: (v) => figure(v),
    more: plan.metric ? plan.metric.higher_is_better : true,
    none: plan.metric
      ? "No candidate's answers were judged."
      : `The accuracy of no candidate was measured. ${noCalibration}`,
  },
  {
    key: "leakage",
    label: "leakage (share recovered)",
    format: (v) => figure(v),
    none: plan.attack
      ? "The attack was tried on no candidate."
      : "No leakage figure is given: there was no calibration data (plan with --calibration DIR), " +
        "or the attack failed at the input itself, so that its failure elsewhere would say nothing.",
  },
  {
    key: "memory",
    label: "memory on the device",
    format: (v) => bytes(v),
    isBytes: true,
    none:
      "The device's profile has no figure of resident memory: take it with seamline-edge " +
      "profile on a system that tells it.",
  },
];
const known = (figure) => candidates.filter((one) => one[figure.key] !== null);
