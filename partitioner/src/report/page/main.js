// The page, from what is looked at first to what is looked up.

const main = document.getElementById("page");
const footer = el(
  "footer",
  { class: "muted" },
  `Model ${plan.graph}. Drawn by seamline report; this page loads nothing and sends nothing.`,
);
main.replaceChildren(
  ...headline(),
  latencyCard(),
  el("div", { class: "pair" }, payloadCard(), paretoCard()),
  el("div", { class: "pair" }, accuracyCard(), memoryCard()),
  leakageCard(),
  el("div", { class: "pair" }, measuredCard(), settingsCard()),
  candidatesCard(),
  footer,
);
for (const draw of drawings) draw();
document.documentElement.setAttribute("data-drawn", String(candidates.length));
