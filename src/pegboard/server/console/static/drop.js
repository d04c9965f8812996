// Dropping files anywhere on the page of documents; the form works without this.
(() => {
  "use strict";
  const form = document.querySelector("[data-drop]");
  if (!form) return;
  const hint = form.querySelector("[data-drop-hint]"), files = form.querySelector("input[type=file]");
  hint.hidden = false;
  const hasFiles = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
  let inside = 0;
  const mark = (by) => { inside = Math.max(inside + by, 0); form.classList.toggle("over", inside > 0); };
  document.addEventListener("dragenter", (event) => { if (hasFiles(event)) mark(1); });
  document.addEventListener("dragleave", (event) => { if (hasFiles(event)) mark(-1); });
  document.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(-inside);
    files.files = event.dataTransfer.files;
    form.requestSubmit();
  });
  form.addEventListener("submit", () => { form.classList.add("busy"); form.querySelector("button").textContent = "Uploading…"; });
})();
