// Keys and copy buttons. Every page reads and works without this file.
(() => {
  "use strict";
  const rows = () => [...document.querySelectorAll("#main .pegs a.peg, #main [data-row]")];
  const step = (by) => {
    const all = rows(), at = all.indexOf(document.activeElement);
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
    if (next) { next.focus(); next.scrollIntoView({block: "nearest"}); }
  };
  const keys = {
    "/": () => { const field = document.getElementById("q"); if (field) { field.focus(); field.select(); } else if (palette) openPalette(); else location.assign(board()); },
    j: () => step(1), k: () => step(-1),
    b: () => location.assign(board()),
    "?": () => document.getElementById("keys").showModal(),
  };
  const board = () => (document.querySelector("[data-board]") || {href: location.href}).href;
  // The palette: the search page in a dialog; arrows choose, Enter opens.
  const palette = document.getElementById("palette");
  const hits = () => [...palette.querySelectorAll(".hits a")];
  const mark = (chosen) => {
    const all = hits(), field = document.getElementById("palette-q");
    for (const one of all) { one.setAttribute("aria-selected", String(one === chosen)); one.removeAttribute("id"); }
    if (chosen) { chosen.id = "palette-chosen"; field.setAttribute("aria-activedescendant", "palette-chosen"); }
    else field.removeAttribute("aria-activedescendant");
  };
  const choose = (by) => {
    const all = hits(), at = all.findIndex((one) => one.getAttribute("aria-selected") === "true");
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    mark(next);
    if (next) next.scrollIntoView({block: "nearest"});
  };
  const openPalette = () => {
    if (!palette.open) palette.showModal();
    const field = document.getElementById("palette-q");
    field.focus(); field.select();
  };
  if (palette) {
    for (const link of document.querySelectorAll("[data-find]")) link.addEventListener("click", (event) => { event.preventDefault(); openPalette(); });
    // Enter opens the first hit, but never one of the words before: typing takes the mark away until new hits are there.
    document.getElementById("palette-q").addEventListener("input", () => mark(null));
    new MutationObserver(() => {
      const list = palette.querySelector(".hits");
      if (!list) return;
      list.setAttribute("role", "listbox");
      for (const row of list.children) row.setAttribute("role", "none");
      for (const one of hits()) one.setAttribute("role", "option");
      mark(hits()[0]);
    }).observe(document.getElementById("palette-hits"), {childList: true});
    palette.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(event.key === "ArrowDown" ? 1 : -1); }
      const chosen = hits().find((one) => one.getAttribute("aria-selected") === "true");
      if (event.key === "Enter" && chosen) { event.preventDefault(); location.assign(chosen.href); }
    });
    palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
  }
  document.addEventListener("keydown", (event) => {
    if (palette && (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (palette.open) palette.close(); else if (!document.querySelector("dialog[open]")) openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const target = event.target;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  const addCopy = (root) => {
    if (!navigator.clipboard) return;
    for (const block of root.querySelectorAll(".copied:not(:has(.copy)) > pre")) {
      const button = document.createElement("button");
      button.type = "button"; button.className = "copy"; button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      block.parentElement.append(button);
    }
  };
  addCopy(document);
  // On a phone the navigation scrolls: begin with the tab of this page in sight.
  const current = document.querySelector("nav a[aria-current]"), list = current && document.querySelector("nav > ul");
  const showTab = () => { list.scrollLeft += current.getBoundingClientRect().left - list.getBoundingClientRect().left - (list.clientWidth - current.offsetWidth) / 2; };
  if (list) {
    showTab();
    // The number of waiting calls comes later, and is wider than its place.
    new MutationObserver(showTab).observe(list, {childList: true, subtree: true});
  }

  // An account is connected in another tab: show its state when the reader comes back.
  if (document.querySelector("[data-reload]")) document.addEventListener("visibilitychange", () => { if (!document.hidden) location.reload(); });

  // Live calls: everything is written as text, and as often as the browser draws.
  const live = document.getElementById("live");
  if (live) {
    const ROWS = 300, WAITING = 2000, DRAW_MS = 100, filter = document.getElementById("q"), body = live.tBodies[0], state = document.getElementById("live-state");
    const known = new Map();
    let waiting = [], lost = 0, isDrawing = false, drawn = 0;
    const sift = (row) => { row.hidden = !row.textContent.toLowerCase().includes(filter.value.trim().toLowerCase()); };
    filter.addEventListener("input", () => [...body.rows].forEach(sift));
    const cell = (row, text, name) => {
      const made = row.insertCell();
      made.textContent = text == null ? "" : String(text);
      if (name) made.className = name;
      return made;
    };
    const draw = () => {
      isDrawing = false; drawn = performance.now();
      const events = waiting; waiting = [];
      document.getElementById("live-empty").hidden = true;
      for (const [kind, call] of events) {
        let row = known.get(call.id);
        if (!row) {
          // A call that another one made is below it.
          const above = call.parent && known.get(call.parent);
          row = body.insertRow(above && above.isConnected ? above.sectionRowIndex + 1 : 0);
          known.set(call.id, row);
          cell(row, new Date(call.at * 1000).toISOString().slice(11, 19), "mono nowrap utc");
          const tool = cell(row, "", call.parent ? "mono nested" : "mono");
          tool.textContent = call.tool;
          for (const text of [call.who, call.profile, call.door]) cell(row, text, "fine");
          const outcome = document.createElement("span");
          outcome.className = "tag state-runs"; outcome.textContent = "runs";
          cell(row, "", "fine").append(outcome);
          cell(row, "", "fine num");
        }
        if (kind === "finished") {
          const outcome = row.cells[5].firstChild;
          outcome.textContent = call.outcome; outcome.title = call.kind;
          outcome.className = "tag state-" + ({ok: "up", consent_required: "asks"}[call.kind] || "down");
          row.cells[6].textContent = call.took;
          row.cells[6].title = Object.entries(call.stages).map(([name, ms]) => name + " " + ms + " ms").join(", ");
          if (live.dataset.audit) {
            const link = document.createElement("a");
            link.href = live.dataset.audit + encodeURIComponent(call.id);
            link.textContent = call.tool; link.dataset.row = "";
            row.cells[1].replaceChildren(link);
          }
        }
        if (filter.value) sift(row);
      }
      while (body.rows.length > ROWS) body.deleteRow(-1);
      if (known.size > 4 * ROWS) for (const [id, row] of known) if (!row.isConnected) known.delete(id);
    };
    const add = (kind) => (event) => {
      waiting.push([kind, JSON.parse(event.data)]);
      if (waiting.length > WAITING) { waiting.shift(); lost += 1; state.textContent = lost + " events came too fast to be shown."; }
      if (!isDrawing) {
        // A first call is drawn at once, many of them ten times a second.
        isDrawing = true;
        setTimeout(() => requestAnimationFrame(draw), Math.max(0, DRAW_MS - (performance.now() - drawn)));
      }
    };
    const stream = new EventSource(live.dataset.stream);
    stream.addEventListener("started", add("started"));
    stream.addEventListener("finished", add("finished"));
    stream.addEventListener("dropped", (event) => { lost += JSON.parse(event.data).events; state.textContent = lost + " events came too fast to be shown."; });
    stream.addEventListener("open", () => { state.textContent = "Connected. Calls appear here as they happen."; });
    stream.addEventListener("error", () => { state.textContent = stream.readyState === 2 ? "The stream has ended. Reload the page." : "Connecting again…"; });
  }
})();
