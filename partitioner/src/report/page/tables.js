// What the plan was made for, and all candidates.

function settingsCard() {
  const value = (number) => trimmed(short(number));
  const { link, device, cloud, prices, constraints } = plan;
  const rate = (one) =>
    `${value(one.p50_bps / 1e6)} Mbit/s; 95 % of the time over ${value(one.p5_bps / 1e6)}`;
  const sources = {
    preset: "a preset",
    given: "given on the command line",
    probe: "measured by seamline-edge probe",
    trace: "a recording",
  };
  const machine = (one) => [
    ["name", one.name || "–"],
    ["processor", `${one.cpu || "unknown"}, ${plural(one.cores, "core")}`],
    [
      "platform",
      [one.platform, one.memory_bytes ? trimmed(bytes(one.memory_bytes)) : null]
        .filter(Boolean)
        .join(", "),
    ],
    ["runs", `${one.runtime}, ${plural(one.threads, "thread")}`],
    ["providers", one.providers.join(", ") || "–"],
    [
      "times",
      one.slowdown === 1
        ? "measured on it"
        : `scaled: ${value(one.slowdown)} times those of the machine that was measured`,
    ],
  ];
  const limit = (value, format) => (value === null ? "none" : format(value));
  const groups = [
    ["Device", machine(device)],
    ["Service", [...machine(cloud), ["other requests", `${value(plan.arrivals_per_s)} a second`]]],
    [
      "Link",
      [
        ["name", `${link.name}, ${sources[link.source] || link.source}`],
        ["up", rate(link.up)],
        ["down", rate(link.down)],
        [
          "round trip",
          `${trimmed(time(link.round_trip.p50_us))}; 95th percentile ${trimmed(time(link.round_trip.p95_us))}`,
        ],
        ["loss", percent(link.loss)],
        [
          "radio",
          `${value(link.radio.base_w)} W + ${value(link.radio.up_w_per_mbps)} W per Mbit/s up, ${value(link.radio.down_w_per_mbps)} down`,
        ],
      ],
    ],
    [
      "Prices and limits",
      [
        ["device computes", `${value(prices.compute_w)} W`],
        ["device waits", `${value(prices.wait_w)} W`],
        ["service", `${trimmed(money(prices.cloud_usd_per_hour))} an hour`],
        ["accuracy loss", limit(constraints.accuracy_loss, (v) => `at most ${value(v)}`)],
        ["device memory", limit(constraints.device_memory, (v) => `at most ${bytes(v)}`)],
        ["leakage", limit(constraints.leakage, (v) => `at most ${value(v)}`)],
        ["deadline (p95)", limit(constraints.deadline_us, (v) => `at most ${time(v)}`)],
      ],
    ],
  ];
  const block = ([name, rows]) =>
    el(
      "table",
      { class: "settings" },
      el("caption", {}, name),
      el(
        "tbody",
        {},
        rows.map(([key, value]) =>
          el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, value)),
        ),
      ),
    );
  return card(
    "settings",
    "What it was planned for",
    null,
    el("div", { class: "columns" }, groups.map(block)),
  );
}

// How many rows are drawn at a time.
const PAGE_ROWS = 100;

function candidatesCard() {
  const missingLast = (value) => (value === null ? Infinity : value);
  const columns = [
    {
      name: "candidate",
      sort: (one) => one.index,
      cell: (one) => [one.chosen ? el("span", { class: "chip accent" }, "chosen") : null, one.id],
      text: true,
    },
    {
      name: "where",
      sort: (one) => PLACEMENTS_SHORT[one.placement],
      cell: (one) => el("span", { class: "nowrap" }, PLACEMENTS_SHORT[one.placement]),
      text: true,
    },
    { name: "latency", sort: (one) => one.total, cell: (one) => time(one.total) },
    { name: "p95", sort: (one) => one.p95, cell: (one) => time(one.p95) },
    { name: "depth", sort: (one) => one.depth, cell: (one) => percent(one.depth) },
    { name: "energy", sort: (one) => one.energy, cell: (one) => energy(one.energy) },
    { name: "sent", sort: (one) => one.up, cell: (one) => bytes(one.up) },
    { name: "per 1,000", sort: (one) => one.cost, cell: (one) => money(one.cost) },
    { name: "rate", sort: (one) => -one.rate, cell: (one) => perSecond(one.rate) },
    {
      name: "memory",
      sort: (one) => missingLast(one.memory),
      cell: (one) => (one.memory === null ? "–" : bytes(one.memory)),
    },
    {
      name: "accuracy",
      sort: (one) =>
        one.accuracy === null ? Infinity : figureOf("accuracy").more ? -one.accuracy : one.accuracy,
      cell: (one) => (one.accuracy === null ? "–" : figure(one.accuracy)),
    },
    {
      name: "leakage",
      sort: (one) => missingLast(one.leakage),
      cell: (one) => (one.leakage === null ? "–" : figure(one.leakage)),
    },
    {
      name: "measured",
      sort: (one) => (one.measured ? one.measured.total : Infinity),
      cell: (one) => (one.measured ? time(one.measured.total) : "–"),
    },
    { name: "precision", sort: (one) => one.precision, cell: (one) => one.precision, text: true },
    { name: "remarks", sort: (one) => one.breaks.length, cell: remarks, text: true },
  ];
  const state = { column: columns[0], down: false, words: "", count: PAGE_ROWS };
  const body = el("tbody", {});
  const found = el("p", { class: "about", role: "status" });
  const more = el(
    "button",
    {
      type: "button",
      onclick: () => {
        state.count += 5 * PAGE_ROWS;
        fill();
      },
    },
    "Show more",
  );
  const haystack = candidates.map((one) =>
    [one.id, PLACEMENTS[one.placement], one.precision, ...one.cut.values, ...one.breaks]
      .join(" ")
      .toLowerCase(),
  );
  const heads = columns.map((column) =>
    el(
      "th",
      { scope: "col", class: column.text ? null : "number", "aria-sort": "none" },
      el(
        "button",
        {
          type: "button",
          onclick: () => {
            state.down = state.column === column && !state.down;
            state.column = column;
            fill();
          },
        },
        column.name,
      ),
    ),
  );
  function fill() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = candidates.filter((one) =>
      words.every((word) => haystack[one.index].includes(word)),
    );
    const { sort } = state.column;
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    rows.sort((a, b) => (state.down ? -1 : 1) * order(sort(a), sort(b)) || a.index - b.index);
    heads.forEach((head, at) =>
      head.setAttribute(
        "aria-sort",
        columns[at] !== state.column ? "none" : state.down ? "descending" : "ascending",
      ),
    );
    body.replaceChildren(
      ...rows.slice(0, state.count).map((one) =>
        el(
          "tr",
          { class: one.chosen ? "chosen" : one.keeps ? null : "breaks" },
          columns.map((column) =>
            el("td", { class: column.text ? null : "number" }, column.cell(one)),
          ),
        ),
      ),
    );
    const shown = Math.min(rows.length, state.count);
    found.textContent = `${digits(shown, 0)} of ${plural(rows.length, "candidate")}${words.length ? " found" : ""}`;
    more.hidden = shown === rows.length;
  }
  const search = el("input", {
    type: "search",
    placeholder: "Search: id, value, constraint …",
    "aria-label": "Search the candidates",
    oninput: (event) => {
      state.words = event.target.value;
      state.count = PAGE_ROWS;
      fill();
    },
  });
  fill();
  return card(
    "candidates",
    "All candidates",
    null,
    el("div", { class: "controls" }, search, found),
    el(
      "div",
      { class: "scroll tall" },
      el("table", { class: "plain wide" }, el("thead", {}, el("tr", {}, heads)), body),
    ),
    more,
  );
}

function remarks(one) {
  return [
    ...one.breaks.map((broken) => el("span", { class: "broken" }, `breaks: ${broken}`)),
    one.pareto ? el("span", { class: "chip" }, "Pareto") : null,
    one.kept ? el("span", { class: "chip" }, "in the bundle") : null,
    one.whole
      ? null
      : el("span", { class: "chip", title: "Head and tail are sums over nodes" }, "estimated"),
  ];
}
