// Reads and decides consents in a real browser, as a person and as pages that mean harm. Told in JSON on stdin.
import chromium from "@sparticuz/chromium";
import { createServer } from "node:http";
import { chromium as playwright } from "playwright-core";

const { page: address, consent, approver, agent, cookie } = JSON.parse(process.argv[2]);
// Without what would let pages into each other.
const args = chromium.args.filter((one) => !/web-security|site-isolation|insecure|bypass/.test(one));
const browser = await playwright.launch({ executablePath: await chromium.executablePath(), args });
const seen = { dialogs: [], foreign: [], errors: [] };

async function opened(url, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("dialog", (dialog) => { seen.dialogs.push(dialog.message()); dialog.dismiss(); });
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("data:")) seen.foreign.push(request.url());
  });
  page.on("console", (line) => { if (line.type() === "error") seen.errors.push(line.text()); });
  if (url) await page.goto(url);
  return page;
}

async function show(page, key) {
  // What was said to whoever asked before is not the answer.
  await page.evaluate(() => { document.getElementById("said").textContent = ""; });
  await page.fill("#key", key);
  await page.click("#show button");
  await page.waitForFunction(() => document.getElementById("said").textContent !== "");
  return {
    said: await page.textContent("#said"),
    question: await page.textContent("#question"),
    arguments: await page.textContent("#arguments"),
    isShown: await page.isVisible("#shown"),
    mayDecide: await page.isVisible("#approve"),
    elements: await page.evaluate(() => document.querySelectorAll("img,iframe,svg,a,object,embed,body script").length),
    pwned: await page.evaluate(() => String(window.pwned)),
  };
}

// A page of somebody else, on the same machine: the browser takes its site for the same, as cookies go.
const evil = createServer((_request, answer) => {
  answer.setHeader("content-type", "text/html");
  answer.end("<!doctype html><body>");
});
await new Promise((ready) => evil.listen(0, "127.0.0.1", ready));
const evilUrl = `http://127.0.0.1:${evil.address().port}/`;

const result = {};
const url = `${address}/consents/${consent}`;
const page = await opened(url);
result.byAgent = await show(page, agent);
result.byPerson = await show(page, approver);

const framing = await opened(evilUrl);
const frameOf = (source) => framing.evaluate((src) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { let inside; try { inside = frame.contentDocument !== null; } catch { inside = false; } done(inside); };
  frame.src = src;
  document.body.append(frame);
}), source);
await frameOf(url);
result.framed = await Promise.all(framing.frames().slice(1).map(async (frame) => (await frame.content()).includes("approve")));

// Requests of that page, with the cookie of a person who is logged in, by form and by script.
const raid = await opened(evilUrl);
const control = await raid.context().newPage();
await control.goto(url);
await control.evaluate((value) => { document.cookie = `who=${value}; path=/; samesite=lax`; }, cookie);
result.cookies = await raid.context().cookies();
result.byCookie = await show(control, "");
result.raids = await raid.evaluate(async (place) => {
  const answers = [];
  for (const options of [
    { method: "POST", credentials: "include" },
    { method: "POST", credentials: "include", mode: "no-cors" },
    { method: "POST", credentials: "include", mode: "no-cors", headers: { "content-type": "text/plain" }, body: "{}" },
    { method: "GET", credentials: "include" },
  ]) {
    try {
      const answer = await fetch(place + (options.method === "POST" ? "/approve" : ""), options);
      answers.push(`${answer.type} ${answer.status} ${(await answer.text()).length}`);
    } catch (error) {
      answers.push(error.name);
    }
  }
  return answers;
}, `${address}/v1/consents/${consent}`);
await raid.evaluate((place) => {
  const form = document.createElement("form");
  Object.assign(form, { method: "POST", action: place, enctype: "text/plain" });
  document.body.append(form);
  form.submit();
}, `${address}/v1/consents/${consent}/approve`);
await raid.waitForLoadState();
result.afterForm = (await raid.textContent("body")).slice(0, 200);

// The person, at last: twice, as impatient people do.
if (process.argv[3] === "decide") {
  seen.foreign.length = 0;
  await page.click("#approve");
  await page.waitForFunction(() => document.getElementById("said").textContent.includes("agreed"));
  result.decided = { said: await page.textContent("#said"), mayDecide: await page.isVisible("#approve") };
}
result.seen = { ...seen, foreign: seen.foreign.filter((one) => !one.startsWith(evilUrl)) };
console.log(JSON.stringify(result));
await browser.close();
evil.close();
