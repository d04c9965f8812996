// Connects an account in a real browser, as a person does. Told in JSON: {link, key, issuer, who}. Prints what it saw.
import { chromium as playwright } from "playwright-core";

const { link, key, issuer, who } = JSON.parse(process.argv[2]);
let executablePath = process.env.CHROMIUM, args = ["--no-sandbox"];
if (!executablePath) {
  const { default: chromium } = await import("@sparticuz/chromium");
  executablePath = await chromium.executablePath();
  // Without what would let pages into each other.
  args = chromium.args.filter((one) => !/web-security|site-isolation|insecure|bypass/.test(one));
}
const browser = await playwright.launch({ executablePath, args });
const context = await browser.newContext();
const page = await context.newPage();
const seen = { errors: [], referrers: [] };
page.on("console", (line) => { if (line.type() === "error") seen.errors.push(line.text()); });
page.on("request", (request) => {
  if (request.url().startsWith(issuer)) seen.referrers.push(request.headers().referer ?? "");
});

await page.goto(link);
seen.asked = await page.textContent("body");
seen.scripts = await page.evaluate(() => document.scripts.length);
seen.cookies = await page.evaluate(() => document.cookie);
// A page of another address cannot frame it, nor read its cookie.
const other = await context.newPage();
await other.goto(`${issuer}/jwks`);
seen.framed = await other.evaluate((address) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.onload = () => {
    try { resolve(frame.contentDocument === null ? "refused" : "empty"); } catch { resolve("refused"); }
  };
  frame.src = address;
  document.documentElement.append(frame);
}), link);
await other.close();

await page.fill("input[name=key]", key);
await page.click("button[value=connect]");
await page.waitForURL(`${issuer}/**`);
seen.atIssuer = await page.textContent("h1");
await page.click(`button[value=${who}]`);
await page.waitForURL("**/connections/callback?**");
seen.done = await page.textContent("h1");
seen.address = page.url();
console.log(JSON.stringify(seen));
await browser.close();
