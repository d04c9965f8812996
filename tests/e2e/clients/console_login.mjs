// Logs in to the console at the issuer in a real browser, as a person does. Told in JSON: {page, issuer, who}. Prints what it saw.
import chromium from "@sparticuz/chromium";
import { chromium as playwright } from "playwright-core";

const { page: wanted, issuer, who } = JSON.parse(process.argv[2]);
const executablePath = process.env.PEGBOARD_CHROMIUM || await chromium.executablePath();
const args = process.env.PEGBOARD_CHROMIUM ? ["--no-sandbox"] : chromium.args.filter((one) => !/web-security|site-isolation|insecure|bypass|single-process/.test(one));
const browser = await playwright.launch({ executablePath, args });
const context = await browser.newContext();
const page = await context.newPage();
const seen = { errors: [], referrers: [], asked: [] };
page.on("console", (line) => { if (line.type() === "error") seen.errors.push(line.text()); });
page.on("pageerror", (error) => seen.errors.push(String(error)));
page.on("request", (request) => {
  if (!request.url().startsWith(issuer)) return;
  seen.asked.push(request.url());
  seen.referrers.push(request.headers().referer ?? "");
});

await page.goto(wanted);
seen.login = await page.innerText("main");
await page.click("a.button.main");
await page.waitForURL(`${issuer}/**`);
seen.atIssuer = await page.textContent("h1");
await page.click(`button[value=${who}]`);
// After the page in between, the page that was wanted.
await page.waitForURL((url) => url.href === wanted);
seen.person = await page.innerText(".who");
seen.title = await page.innerText("h1");
seen.script = await page.evaluate(() => document.cookie);
seen.cookies = (await context.cookies()).map(({ name, path, httpOnly, sameSite }) => ({ name: name.replace(/\d+/, "PORT"), path, httpOnly, sameSite }));
await page.goBack();
seen.back = page.url();
await page.goto(wanted);
await page.click(".who button");
await page.waitForURL((url) => url.pathname.endsWith("/login"));
await page.goto(wanted);
seen.after = page.url();
console.log(JSON.stringify(seen));
await browser.close();
