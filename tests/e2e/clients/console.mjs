// Walks the console in a real browser: every page, light and dark, on three widths. Told in JSON as its argument.
import { readFile } from "node:fs/promises";
import chromium from "@sparticuz/chromium";
import { chromium as playwright } from "playwright-core";

const told = JSON.parse(process.argv[2]);
const { base, link, key, pages, pictures = "", widths = [390, 1280, 2560], copies = "", schemes = ["light", "dark"], height = 900 } = told;
const executablePath = process.env.PEGBOARD_CHROMIUM || await chromium.executablePath();
const args = process.env.PEGBOARD_CHROMIUM ? ["--no-sandbox"] : chromium.args.filter((one) => !/web-security|site-isolation|insecure|bypass|single-process/.test(one));
const browser = await playwright.launch({ executablePath, args });
const axe = await readFile(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const faults = [];

async function opened(options) {
  const context = await browser.newContext({ locale: "en-US", ...options });
  const page = await context.newPage();
  const seen = [];
  page.on("dialog", (dialog) => { seen.push("dialog " + dialog.message()); dialog.dismiss(); });
  page.on("console", (line) => { if (["error", "warning"].includes(line.type())) seen.push(line.text()); });
  page.on("pageerror", (error) => seen.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith(base)) seen.push("request of " + request.url()); });
  return { context, page, seen };
}

async function violations(page) {
  // Copies are removed before axe runs: with 5,000 rows, its own `exclude` takes minutes.
  if (copies) await page.evaluate((selector) => { for (const one of document.querySelectorAll(selector)) one.remove(); }, copies);
  await page.evaluate(axe);
  return (await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }))).violations;
}

const first = await opened({});
await first.page.goto(`${base}/login` + (link ? `?link=${link}` : ""));
if (key) await first.page.fill("#key", key);
await first.page.click("button.main");
await first.page.waitForURL((url) => !url.pathname.endsWith("/login"));
const storageState = await first.context.storageState();
faults.push(...first.seen.map((text) => `login: ${text}`));

for (const colorScheme of schemes) for (const width of widths) {
  const { context, page, seen } = await opened({ storageState, colorScheme, viewport: { width, height } });
  for (const [name, path, after] of pages) {
    const where = `${name} ${colorScheme} ${width}`;
    const answer = await page.goto(base + path, { waitUntil: "load" });
    if (answer.status() !== 200) faults.push(`${where}: status ${answer.status()}`);
    if (after) {
      await page.evaluate(() => { window.isLeft = true; });
      await page.click(after);
      await page.waitForFunction(() => !window.isLeft && document.readyState === "complete");
    }
    if (await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth)) faults.push(`${where}: wider than the window`);
    if (await page.evaluate(() => window.pwned !== undefined)) faults.push(`${where}: hostile text ran`);
    if (pictures) await page.screenshot({ path: `${pictures}/${name}-${colorScheme}-${width}.png` });
    for (const one of await violations(page)) if (["serious", "critical"].includes(one.impact)) faults.push(`${where}: ${one.id} at ${one.nodes[0].html.slice(0, 200)}`);
    faults.push(...seen.splice(0).map((text) => `${where}: ${text}`));
  }
  await context.close();
}

// Every page can be read without JavaScript.
const bare = await opened({ storageState, javaScriptEnabled: false });
const texts = {};
for (const [name, path] of pages) { await bare.page.goto(base + path); texts[name] = (await bare.page.innerText("main")).length; }

// Keys: search, next and previous, help.
const keys = await opened({ storageState, viewport: { width: 1280, height } });
await keys.page.goto(base + pages[0][1]);
await keys.page.keyboard.press("/");
const pressed = { search: await keys.page.evaluate(() => document.activeElement.id) };
await keys.page.keyboard.press("Escape");
await keys.page.keyboard.press("j"); await keys.page.keyboard.press("j"); await keys.page.keyboard.press("k");
pressed.peg = await keys.page.evaluate(() => document.activeElement.classList.contains("peg"));
await keys.page.keyboard.press("?");
pressed.help = await keys.page.evaluate(() => document.getElementById("keys").open);
await keys.page.keyboard.press("Escape");
// The palette: typed words find a page, arrows choose it, Enter opens it.
await keys.page.keyboard.press("Control+k");
await keys.page.keyboard.type("two callers");
await keys.page.waitForFunction(() => document.querySelectorAll("#palette-hits a").length === 1);
await keys.page.keyboard.press("ArrowDown");
await Promise.all([keys.page.waitForURL((url) => url.pathname.endsWith("/compare")), keys.page.keyboard.press("Enter")]);
pressed.palette = await keys.page.innerText("h1");

// What a board costs to draw.
const cdp = await keys.context.newCDPSession(keys.page);
await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
const cost = async () => (await cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;
const before = await cost();
await keys.page.goto(base + pages[0][1]);
await keys.page.waitForTimeout(500);
const drawn = { pegs: await keys.page.evaluate(() => document.querySelectorAll(".pegs a.peg").length), ms: 1000 * (await cost()) };
void before;

// A file that is dropped anywhere on a page is sent by its form.
let dropped = "";
if (told.drop) {
  const { page, seen } = await opened({ storageState });
  await page.goto(base + told.drop.path);
  const files = await page.evaluateHandle(({ name, text }) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], name));
    return transfer;
  }, told.drop);
  await page.dispatchEvent("main", "dragenter", { dataTransfer: files });
  await Promise.all([page.waitForURL((url) => url.search.includes("done=")), page.dispatchEvent("main", "drop", { dataTransfer: files })]);
  dropped = await page.innerText("main");
  faults.push(...seen.map((text) => `drop: ${text}`));
}
await browser.close();
console.log(JSON.stringify({ faults, texts, pressed, drawn, dropped }));
