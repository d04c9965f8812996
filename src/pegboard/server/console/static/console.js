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
    "/": () => { const field = document.getElementById("q"); if (field) { field.focus(); field.select(); } else location.assign(board()); },
    j: () => step(1), k: () => step(-1),
    b: () => location.assign(board()),
    "?": () => document.getElementById("keys").showModal(),
  };
  const board = () => (document.querySelector("[data-board]") || {href: location.href}).href;
  document.addEventListener("keydown", (event) => {
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
})();
