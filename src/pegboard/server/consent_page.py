"""Consent page: the target of a refused call's link. A person enters a credential, reads the question, and decides.

The page is the same for every id and does not contain the question: its script asks the HTTP API with the reader's
credential, and shows the answer as text.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from pegboard.server.host_guard import HostGuard
from pegboard.server.plain_page import STYLE, STYLE_SOURCE, source_of

_SCRIPT = """
const at = (id) => document.getElementById(id);
const cut = location.pathname.lastIndexOf("/consents/");
const place = location.pathname.slice(0, cut) + "/v1/consents/"
  + encodeURIComponent(decodeURIComponent(location.pathname.slice(cut + 10)));
// Digits beyond those that a browser counts with are shown as they came, or not at all: a call runs with those.
const exact = (key, value, {source} = {}) =>
  typeof value !== "number" || String(value) === source ? value
  : source && JSON.rawJSON ? JSON.rawJSON(source)
  : Number.isFinite(value) && Number.isInteger(value) === Number.isSafeInteger(value) ? value
  : "(a number: see above)";
const plain = (text) => text.replace(/[^\\x0a\\x20-\\x7e]/g,
  (char) => "\\\\u" + char.charCodeAt(0).toString(16).padStart(4, "0"));
async function ask(method, path, fields) {
  const key = at("key").value.trim();
  const headers = key ? {authorization: "Bearer " + key} : {};
  if (fields) headers["content-type"] = "application/json";
  const sent = fields && JSON.stringify(fields);
  let answer, body;
  try {
    answer = await fetch(place + path,
      {method, headers, body: sent, cache: "no-store", referrerPolicy: "no-referrer"});
    body = JSON.parse(await answer.text(), exact);
  } catch (error) {
    at("said").textContent = "The server does not answer.";
    return;
  }
  const most = body.approvalsNeeded;
  const count = most > 1 ? ", " + body.approvers.length + " of " + most + " have approved" : "";
  at("said").textContent = answer.ok ? "State: " + body.state + count : body.detail;
  if (!answer.ok) return;
  at("scope").textContent = body.scope || "";
  if (fields && fields.preview) return true;
  at("question").textContent = body.question;
  const runs = body.edited || body.arguments;
  at("edited").textContent = body.edited ? plain(body.editedBy) + " changed the arguments. It would run with:" : "";
  at("arguments").textContent = runs === null ? "(too long to be shown whole)" : plain(JSON.stringify(runs, null, 2));
  const credential = body.credential && body.credential.slice(0, 12) + "…";
  at("who").textContent = [body.user, body.space, credential, body.agent].filter(Boolean).join(", ");
  at("decide").hidden = body.state !== "asked";
  at("several").hidden = body.state !== "asked" || most > 1;
  at("give").disabled = true;
  const names = [...new Set([...(body.parameters || []), ...Object.keys(body.arguments || {})])];
  at("names").replaceChildren(...names.map((name) => {
    const label = document.createElement("label"), choice = document.createElement("select");
    choice.dataset.name = name;
    for (const [value, text] of [["same", "as in this call"], ["any", "any value"], ["", "left out, or its default"]])
      if (value !== "same" || name in (body.arguments || {})) choice.append(new Option(text, value));
    label.append(plain(name) + " ", choice);
    return label;
  }));
  at("shown").hidden = false;
}
at("show").addEventListener("submit", (event) => { event.preventDefault(); ask("GET", ""); });
at("approve").addEventListener("click", () => ask("POST", "/approve"));
at("deny").addEventListener("click", () => ask("POST", "/deny", {reason: at("reason").value}));
// A grant is given as it was read: a change of the form asks for the text again.
const chosen = (value) => [...at("names").querySelectorAll("select")]
  .filter((choice) => choice.value === value).map((choice) => choice.dataset.name);
const grant = (preview) => ask("POST", "/grant", {
  calls: Number(at("calls").value), seconds: Number(at("hours").value) * 3600, same: chosen("same"),
  any: chosen("any"), anyOther: at("other").checked, preview});
at("several").addEventListener("change", () => { at("give").disabled = true; at("scope").textContent = ""; });
at("several").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("give").disabled = !(await grant(true));
});
at("give").addEventListener("click", () => grant(false));
"""
_PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Consent</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>
<body><main><h1>An agent asks for your consent</h1>
<form id="show" class="fields" autocomplete="off"><label class="grow">Your key or token (empty where you are logged in)
<input id="key" type="password"></label> <button class="main">Show the question</button></form>
<p id="said" role="status"></p>
<div id="shown" hidden><pre id="question"></pre><p>Asked for: <span id="who"></span></p>
<p id="edited"></p><pre id="arguments"></pre>
<p id="decide" class="actions"><button id="approve" class="main">Approve this one call</button>
<button id="deny" class="danger">Deny</button> <label>Reason, for the caller to read
<input id="reason" maxlength="500"></label></p>
<form id="several" autocomplete="off"><h2>Or allow several calls</h2>
<div class="fields"><label>Calls <input id="calls" type="number" min="1" value="10"></label>
<label>Hours <input id="hours" type="number" min="1" value="24"></label></div>
<div id="names" class="fields"></div>
<p><label><input id="other" type="checkbox"> All arguments that are left out above may have any value</label></p>
<p class="actions"><button>Show what this allows</button>
<button id="give" type="button" disabled>Allow these calls</button></p></form>
<p id="scope" role="status"></p></div>
</main><script>{_SCRIPT}</script></body></html>
"""


_HEADERS = {
    # Other pages must not frame it, so that nobody clicks a hidden button.
    "content-security-policy": f"default-src 'none'; script-src {source_of(_SCRIPT)}; style-src {STYLE_SOURCE}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class ConsentPage:
    """Answers `/consents/{id}`."""

    def __init__(self, host_guard: HostGuard) -> None:
        self._host_guard = host_guard

    @property
    def routes(self) -> list[Route]:
        return [Route("/consents/{id}", endpoint=self._answer, methods=["GET"])]

    async def _answer(self, request: Request) -> Response:
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return PlainTextResponse(refusal.text, status_code=refusal.status)
        return HTMLResponse(_PAGE, headers=_HEADERS)
