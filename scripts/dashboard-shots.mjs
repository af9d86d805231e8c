// Opens a node's dashboard in a headless Chromium, takes screenshots, and fails if the console has an error or the page loads
// anything from elsewhere. Node.js 20: with --experimental-websocket.
//
//   node --experimental-websocket scripts/dashboard-shots.mjs URL FILES [SECONDS]
//
// FILES is the beginning of the files' names (docs/images/qbft); SECONDS passes before the first shot (6). Prints the bytes of the page.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [url, files, seconds = "6"] = process.argv.slice(2);
const VIEWS = [
  { name: "desktop", width: 1280, height: 900, scheme: "light" },
  { name: "dark", width: 1280, height: 900, scheme: "dark" },
  { name: "phone", width: 390, height: 844, scheme: "light", mobile: true },
];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const profile = mkdtempSync(join(tmpdir(), "dashboard-"));
const browser = spawn(process.env.CHROMIUM || "chromium", ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
  "--disable-background-networking", `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
const endpoint = await new Promise((done, failed) => {
  let text = "";
  browser.stderr.on("data", (data) => {
    text += data;
    const found = text.match(/ws:\/\/[^\s]+/);
    if (found) done(found[0]);
  });
  browser.on("exit", () => failed(new Error(`the browser does not start: ${text}`)));
});

const socket = new WebSocket(endpoint);
await new Promise((done) => socket.addEventListener("open", done));
const waiting = new Map();
const errors = [];
let next = 0;
let bytes = 0;
socket.addEventListener("message", (event) => {
  const { id, method, params, result, error } = JSON.parse(event.data);
  if (id) return waiting.get(id)(error ? Promise.reject(new Error(error.message)) : result);
  if (method === "Runtime.exceptionThrown") errors.push(params.exceptionDetails.exception?.description || params.exceptionDetails.text);
  if (method === "Runtime.consoleAPICalled" && params.type === "error") errors.push(JSON.stringify(params.args));
  if (method === "Log.entryAdded" && params.entry.level === "error") errors.push(params.entry.text);
  if (method === "Network.requestWillBeSent" && !params.request.url.startsWith(new URL(url).origin) && !params.request.url.startsWith("data:")) {
    errors.push(`it loads ${params.request.url}`);
  }
  if (method === "Network.loadingFinished" && bytes >= 0) bytes += params.encodedDataLength;
});
const send = (method, params = {}, sessionId = undefined) => new Promise((done) => {
  waiting.set(++next, done);
  socket.send(JSON.stringify({ id: next, method, params, sessionId }));
});

try {
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await page(`${domain}.enable`);
  await page("Page.navigate", { url });
  await sleep(1000);
  console.log(`${bytes} bytes until the first data is there`);
  bytes = -1;
  await sleep(1000 * Number(seconds) - 1000);
  for (const view of VIEWS) {
    await page("Emulation.setDeviceMetricsOverride", { width: view.width, height: view.height, deviceScaleFactor: 1, mobile: Boolean(view.mobile) });
    await page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: view.scheme }] });
    await sleep(700);
    const script = "document.documentElement.scrollWidth + ' ' + document.getElementById('main').hidden";
    const { result } = await page("Runtime.evaluate", { expression: script });
    const [width, isHidden] = result.value.split(" ");
    if (isHidden === "true") errors.push(`${view.name}: the page shows nothing`);
    if (Number(width) > view.width) errors.push(`${view.name}: the page is ${width} wide, the window ${view.width}`);
    const { data } = await page("Page.captureScreenshot", { format: "webp", quality: 70, captureBeyondViewport: true });
    writeFileSync(`${files}-${view.name}.webp`, Buffer.from(data, "base64"));
  }
} finally {
  browser.kill();
  await sleep(300);
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
errors.forEach((error) => console.error(error));
process.exit(errors.length > 0 ? 1 : 0);
