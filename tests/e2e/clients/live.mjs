// Watches the live page of the console. Told in JSON as its argument; says "ready", then what it saw when stdin ends.
import chromium from "@sparticuz/chromium";
import { chromium as playwright } from "playwright-core";

const { base, link } = JSON.parse(process.argv[2]);
const executablePath = process.env.PEGBOARD_CHROMIUM || await chromium.executablePath();
const args = process.env.PEGBOARD_CHROMIUM ? ["--no-sandbox"] : chromium.args.filter((one) => !/web-security|site-isolation|insecure|bypass/.test(one));
const browser = await playwright.launch({ executablePath, args });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
await page.goto(`${base}/login?link=${link}`);
await page.click("button.main");
await page.waitForURL((url) => !url.pathname.endsWith("/login"));
await page.goto(`${base}/live`);
await page.waitForFunction(() => document.getElementById("live-state").textContent.startsWith("Connected"));
await page.evaluate(() => {
  window.seen = {};
  const note = () => {
    for (const row of document.querySelectorAll("#live tbody tr")) {
      const name = row.cells[1].textContent;
      if (name.startsWith("probe_") && !(name in window.seen)) window.seen[name] = Date.now();
    }
  };
  new MutationObserver(note).observe(document.querySelector("#live tbody"), { childList: true });
});
const cdp = await page.context().newCDPSession(page);
await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
const cpu = async () => (await cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;

let began = 0, since = 0;
const result = {};
const commands = {
  // What a second of many calls costs the page's own thread.
  load: async () => { began = await cpu(); since = Date.now(); },
  loaded: async () => {
    result.share = (await cpu() - began) / ((Date.now() - since) / 1000);
    const asked = Date.now();
    await page.evaluate(() => document.title);
    result.answersMs = Date.now() - asked;
    result.rows = await page.evaluate(() => document.querySelectorAll("#live tbody tr").length);
  },
  end: async () => {
    result.seen = await page.evaluate(() => window.seen);
    result.nested = await page.evaluate(() => [...document.querySelectorAll("#live tbody tr")].map((row) => [row.cells[1].textContent, row.cells[1].classList.contains("nested"), row.cells[5].textContent]));
    await browser.close();
    console.log(JSON.stringify(result));
    process.exit(0);
  },
};
console.log("ready");
let left = "";
for await (const piece of process.stdin) {
  const lines = (left + piece).split("\n");
  left = lines.pop();
  for (const line of lines) { await commands[line](); if (line !== "end") console.log("done"); }
}
