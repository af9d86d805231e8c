"use strict";

// Polls niwaki_dashboard and shows what it says. Blocks and log lines come once each and are kept here.

const POLL_MS = 2000;
const KEPT_BLOCKS = 1024;
const KEPT_LINES = 256;
// Blocks of the figures in the tiles, and of the percentiles in the chart.
const RECENT = 256;
const ROLLING = 64;
// A block that was built here takes next to no time, so throughput is that of several.
const SPEED_OF = 16;
// The order of a row of `blocks`.
const BLOCK_FIELDS = ["sequence", "at", "number", "gas", "txs", "ahead", "again", "inTurn",
  "check", "recover", "execute", "root", "compare", "commit", "hits", "misses"];
const PHASES = ["check", "recover", "execute", "root", "compare", "commit"];

const $ = (id) => document.getElementById(id);
let token = sessionStorage.getItem("token");
let blocks = [];
let lines = [];
let lastCpu = null;
let upSeconds = 0;
let failures = 0;

// ---- Text -------------------------------------------------------------------------------------------------

const integer = (n) => Math.round(n).toLocaleString("en-US");
const decimals = (n, digits) => n.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const ms = (micros) => decimals(micros / 1000, micros < 100000 ? 1 : 0);

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${decimals(n, unit > 2 ? 1 : 0)} ${units[unit]}`;
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

function say(id, text, kind) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
  if (kind !== undefined) element.className = kind;
}

// What nodes and peers say is text, never markup.
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function table(into, columns, rows, none) {
  if (rows.length === 0) return into.replaceChildren(element("p", none, "quiet"));
  const head = element("tr");
  columns.forEach((column) => head.append(element("th", column.name, column.text ? "text" : "")));
  const body = rows.map((row) => {
    const line = element("tr");
    columns.forEach((column) => line.append(element("td", column.of(row), column.text ? "text" : "")));
    return line;
  });
  const made = element("table");
  made.append(head, ...body);
  into.replaceChildren(made);
}

function bar(label, value, part, whole) {
  const row = element("div", undefined, "row");
  row.append(element("span", label), element("span", value, "quiet"));
  if (whole > 0) {
    const progress = element("progress");
    progress.max = whole;
    progress.value = Math.min(part, whole);
    progress.setAttribute("aria-label", label);
    row.append(progress);
  }
  return row;
}

// ---- Figures of blocks ------------------------------------------------------------------------------------

function percentile(values, percent) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * percent / 100) - 1)];
}

function block(row) {
  const made = {};
  BLOCK_FIELDS.forEach((field, index) => { made[field] = row[index]; });
  made.total = PHASES.reduce((sum, phase) => sum + made[phase], 0);
  made.parallel = made.txs > 0 ? 100 * made.ahead / made.txs : null;
  return made;
}

// Gas per microsecond is Mgas per second.
function speed(some) {
  const time = some.reduce((sum, one) => sum + one.total, 0);
  return some.reduce((sum, one) => sum + one.gas, 0) / Math.max(1, time);
}

// ---- Charts -----------------------------------------------------------------------------------------------

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let charts = {};

function chart(id, series) {
  const into = $(id);
  const axis = (more) => ({ stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, ...more });
  const clock = (_, times) => times.map((time) => new Date(1000 * time).toLocaleTimeString("en-GB"));
  const made = series.map((one) => ({
    label: one.label, stroke: color(one.color), width: one.points ? 0 : 1.5, spanGaps: true,
    fill: one.fill ? color(one.color) : undefined, points: { show: Boolean(one.points), size: 3, fill: color(one.color) },
    value: (_, value) => value == null ? "–" : decimals(value, 1),
  }));
  const options = {
    width: into.clientWidth, height: 180, padding: [8, 16, 0, 0], series: [{ label: "time", value: (_, time) => time == null ? "–" : clock(_, [time])[0] }, ...made],
    axes: [axis({ values: clock, space: 70 }), axis({ size: 52 })],
    scales: { y: { range: (_, least, most) => [0, Math.max(most * 1.05, 1)] } }, cursor: { points: { size: 5 } },
  };
  into.replaceChildren();
  return new uPlot(options, [[], ...series.map(() => [])], into);
}

function makeCharts() {
  charts = {
    import: chart("chart-import", [
      { label: "block", color: "--a", points: true }, { label: "P50", color: "--c" }, { label: "P99", color: "--b" }]),
    // Each is drawn over the one before: a stack.
    phases: chart("chart-phases", [
      { label: "all", color: "--d", fill: true }, { label: "to state root", color: "--b", fill: true },
      { label: "execution", color: "--a", fill: true }]),
    speed: chart("chart-speed", [{ label: "Mgas/s", color: "--c" }]),
    parallel: chart("chart-parallel", [{ label: "%", color: "--a" }]),
  };
  drawCharts();
}

function drawCharts() {
  const times = blocks.map((one) => one.at / 1000);
  const totals = blocks.map((one) => one.total / 1000);
  const rolling = (percent) => totals.map((_, at) => percentile(totals.slice(Math.max(0, at - ROLLING + 1), at + 1), percent));
  charts.import.setData([times, totals, rolling(50), rolling(99)]);
  const executed = blocks.map((one) => (one.check + one.recover + one.execute) / 1000);
  const rooted = blocks.map((one, at) => executed[at] + one.root / 1000);
  charts.phases.setData([times, totals, rooted, executed]);
  charts.speed.setData([times, blocks.map((_, at) => speed(blocks.slice(Math.max(0, at - SPEED_OF + 1), at + 1)))]);
  charts.parallel.setData([times, blocks.map((one) => one.parallel)]);
}

// ---- Parts of the page ------------------------------------------------------------------------------------

function showStatus(data) {
  const silent = data.driven && data.consensusSilenceSeconds >= 120;
  const [text, kind] = silent ? ["no consensus client", "bad"]
    : data.sync && data.sync.state !== "idle" ? ["syncing", "warn"]
      : { current: ["in sync", "good"], behind: ["behind", "warn"], unknown: ["waiting for a head", "warn"] }[data.status];
  say("status", text, `chip ${kind}`);
  say("client", `${data.client} · chain ${data.chainId} · up ${duration(data.machine.upSeconds)}`);
  document.title = `${integer(data.head.number)} · Niwaki`;
}

function showTiles(data) {
  const head = data.head;
  say("head", integer(head.number));
  const age = data.now / 1000 - head.timestamp;
  const finalized = data.finalized === null ? "" : `, finalized ${integer(head.number - data.finalized)} below`;
  say("head-note", `${duration(age)} ago, ${Math.round(100 * head.gasUsed / Math.max(1, head.gasLimit))} % full${finalized}`);
  const recent = blocks.slice(-RECENT);
  const totals = recent.map((one) => one.total);
  if (recent.length > 0) {
    say("import", `${ms(percentile(totals, 50))} ms`);
    say("import-note", `P50 of ${recent.length} blocks, P99 ${ms(percentile(totals, 99))} ms`);
    say("speed", integer(speed(recent)));
    const txs = recent.reduce((sum, one) => sum + one.txs, 0);
    const ahead = recent.reduce((sum, one) => sum + one.ahead, 0);
    say("speed-note", `${txs > 0 ? Math.round(100 * ahead / txs) : 0} % of transactions in parallel`);
  } else {
    say("import", "–");
    say("import-note", "no block since the start");
    say("speed", "–");
    say("speed-note", "");
  }
  say("peers-count", integer(data.peers.count));
  say("peers-note", data.peers.limit > 0 ? `of ${integer(data.peers.limit)}` : "no network of peers");
  say("pool", integer(data.pool.pending));
  say("pool-note", `${integer(data.pool.queued)} queued, ${bytes(data.pool.bytes + data.pool.blobBytes)}`);
  showMachine(data.machine, data.now);
}

function showMachine(machine, now) {
  say("memory", bytes(machine.residentBytes));
  say("memory-note", `budget ${bytes(machine.memoryBudget)}, peak ${bytes(machine.peakBytes)}`);
  const size = Object.values(machine.segments).reduce((sum, one) => sum + one, 0);
  say("disk", bytes(size));
  say("disk-note", machine.diskFree === undefined ? "" : `${bytes(machine.diskFree)} free of ${bytes(machine.diskSize)}`);
  if (lastCpu !== null && now > lastCpu.now) {
    const share = 100 * (machine.cpuMilliseconds - lastCpu.used) / (now - lastCpu.now);
    say("cpu", `${decimals(share, 0)} %`);
  }
  say("cpu-note", `100 % is one of ${machine.cores} processors`);
  lastCpu = { now, used: machine.cpuMilliseconds };
  const parts = machine.memory.map((part) => {
    const value = part.budget === undefined ? bytes(part.bytes) : `${bytes(part.bytes)} of ${bytes(part.budget)}`;
    return bar(part.name, value, part.bytes, part.budget || 0);
  });
  const known = machine.memory.reduce((sum, part) => sum + part.bytes, 0);
  const rest = Math.max(0, machine.residentBytes - known);
  parts.push(bar("the rest: blocks in progress, prepared code, allocator", bytes(rest), 0, 0));
  $("memory-parts").replaceChildren(...parts);
}

const SYNC_STATES = {
  locate: "finding the common block", headers: "headers", ranges: "accounts and slots", move_pivot: "moving to a later block",
  build: "building tries", heal: "healing", blocks: "blocks", waiting: "waiting",
};

function showSync(sync) {
  const lacksHistory = sync !== null && Number(sync.firstBlock) > 0 && !sync.historyComplete;
  const isBusy = sync !== null && (sync.state !== "idle" || lacksHistory);
  $("sync-panel").hidden = !isBusy;
  if (!isBusy) return;
  const number = (text) => Number(text);
  const [start, current, highest] = [sync.startingBlock, sync.currentBlock, sync.highestBlock].map(number);
  const parts = [];
  const left = sync.secondsLeft === null ? "" : `, ${duration(sync.secondsLeft)} left`;
  parts.push(bar(`${sync.mode.toUpperCase()}: ${SYNC_STATES[sync.state] || sync.state}${left}`,
    sync.waitingFor ? `waits for ${sync.waitingFor}` : "", 0, 0));
  if (highest > start) {
    parts.push(bar("blocks", `${integer(current)} of ${integer(highest)}, ${decimals(sync.blocksPerSecond, 0)}/s`, current - start, highest - start));
  }
  if (sync.lowestHeader !== null && highest > 0) {
    parts.push(bar("headers", `down to ${integer(number(sync.lowestHeader))}, ${integer(sync.headers)} came`, sync.headers, highest - current));
  }
  if (sync.pivot !== null) {
    parts.push(bar(`state of block ${integer(number(sync.pivot))}`,
      `${integer(sync.accounts)} accounts, ${integer(sync.slots)} slots, ${integer(sync.codes)} codes, ${bytes(sync.stateBytes)}`, 0, 0));
  }
  if (lacksHistory) parts.push(bar("older blocks", `from ${integer(number(sync.firstBlock))} on`, 0, 0));
  sync.failures.slice(-3).forEach((failure) => parts.push(element("p", `after ${duration(failure.secondsAfterStart)}: ${failure.reason}`, "quiet")));
  $("sync").replaceChildren(...parts);
}

function showValidator(state) {
  $("validator-panel").hidden = state === null;
  if (state === null) return;
  const round = Number(state.round);
  const line = element("p", `Block ${integer(Number(state.height))}, round ${round}, ${state.phase.replaceAll("_", " ")}; this node ${
    state.isValidator ? "votes" : "does not vote"} as ${state.address}`, round > 0 ? "warn" : "");
  const list = element("div", undefined, "scroll");
  const missing = new Set(state.notConnected);
  table(list, [
    { name: "validator", text: true, of: (one) => one },
    { name: "connection", of: (one) => one === state.address ? "this node" : missing.has(one) ? "not connected" : "connected" },
  ], state.validators, "none");
  $("validator").replaceChildren(line, list);
}

function showLists(data) {
  table($("slow"), [
    { name: "block", text: true, of: (one) => integer(Number(one.number)) },
    { name: "ms", of: (one) => ms(one.microseconds.total) },
    { name: "execution", of: (one) => ms(one.microseconds.execute) },
    { name: "root", of: (one) => ms(one.microseconds.root) },
    { name: "Mgas", of: (one) => decimals(Number(one.gasUsed) / 1e6, 1) },
    { name: "txs", of: (one) => integer(one.transactions) },
    { name: "missed", of: (one) => integer(one.misses) },
  ], data.slow, "no block since the start");
  table($("peers"), [
    { name: "client", text: true, of: (one) => one.client },
    { name: "address", text: true, of: (one) => one.remote },
    { name: "", of: (one) => one.inbound ? "in" : "out" },
    { name: "protocols", text: true, of: (one) => one.capabilities },
    { name: "latest block", of: (one) => integer(one.latest) },
    { name: "score", of: (one) => String(one.score) },
  ], data.peers.list, "none");
}

const LEVELS = { ERROR: "bad", WARN: "warn" };

function showLog(added) {
  const log = $("log");
  const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
  added.forEach((line) => {
    const item = element("li", undefined, LEVELS[line.level] || "");
    item.append(element("time", new Date(line.at).toLocaleTimeString("en-GB")), `${line.level} ${line.text}`);
    log.append(item);
  });
  while (log.childElementCount > KEPT_LINES) log.firstElementChild.remove();
  if (follows) log.scrollTop = log.scrollHeight;
}

function show(data) {
  const fresh = data.blocks.map(block);
  blocks = blocks.concat(fresh).slice(-KEPT_BLOCKS);
  lines = lines.concat(data.machine.lines).slice(-KEPT_LINES);
  showStatus(data);
  showTiles(data);
  showSync(data.sync);
  showValidator(data.validator);
  showLists(data);
  const main = $("main");
  const wasShown = !main.hidden && !main.classList.contains("empty");
  main.hidden = false;
  main.classList.toggle("empty", blocks.length === 0);
  showLog(data.machine.lines);
  if (fresh.length > 0) wasShown ? drawCharts() : makeCharts();
}

// ---- The node ---------------------------------------------------------------------------------------------

async function call(method, params) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const response = await fetch("/", { method: "POST", headers, body });
  if (response.status === 401) {
    askForUser();
    throw new Error("log in first");
  }
  const answer = await response.json();
  if (answer.error) throw new Error(answer.error.message);
  return answer.result;
}

function askForUser() {
  token = null;
  sessionStorage.removeItem("token");
  $("login").hidden = false;
  $("main").hidden = true;
}

async function poll() {
  if (!document.hidden && $("login").hidden) {
    try {
      const after = [blocks.at(-1), lines.at(-1)];
      const data = await call("niwaki_dashboard", [after[0] ? after[0].sequence : 0, after[1] ? after[1].number : 0]);
      // The node was started again: its counts begin anew.
      if (data.machine.upSeconds < upSeconds) {
        [blocks, lines, lastCpu] = [[], [], null];
        $("log").replaceChildren();
      } else {
        show(data);
      }
      upSeconds = data.machine.upSeconds;
      failures = 0;
    } catch (error) {
      failures += 1;
      if (failures > 1) say("status", `no answer: ${error.message}`, "chip bad");
    }
  }
  setTimeout(poll, POLL_MS);
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = JSON.stringify({ username: $("user").value, password: $("password").value });
  const response = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!response.ok) return say("refused", "The node does not know this user with this password.");
  token = (await response.json()).token;
  sessionStorage.setItem("token", token);
  $("password").value = "";
  $("login").hidden = true;
});

const THEMES = ["", "light", "dark"];
function setTheme(theme) {
  document.documentElement.className = theme;
  localStorage.setItem("theme", theme);
  $("theme").textContent = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" }[theme];
  if (!$("main").hidden) makeCharts();
}
$("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.className) + 1) % THEMES.length]));
setTheme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!$("main").hidden) makeCharts(); });
let resized = null;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => { if (!$("main").hidden) makeCharts(); }, 200);
});
document.addEventListener("visibilitychange", () => { lastCpu = document.hidden ? null : lastCpu; });
poll();
