"use strict";
// What HTML cannot do by itself: open a row's details, sort a table, zoom into a part of the flash, print what is folded.

function press(button) {
  const row = document.getElementById(button.getAttribute("aria-controls"));
  const open = row.hidden;
  row.hidden = !open;
  button.setAttribute("aria-expanded", String(open));
}

function key(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.v === undefined ? cell.textContent.trim() : cell.dataset.v;
  const number = Number(value);
  return value !== "" && !Number.isNaN(number) ? number : value.toLowerCase();
}

function order(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? 1 : -1; // what is not known comes before every number
}

function sort(button) {
  const head = button.closest("th");
  const body = head.closest("table").tBodies[0];
  const column = head.cellIndex;
  const down = head.getAttribute("aria-sort") !== "descending" && (head.getAttribute("aria-sort") === "ascending" || head.classList.contains("n"));
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = Array.from(body.rows).filter((row) => !row.classList.contains("detail"));
  const found = rows.map((row) => [key(row, column), row]);
  found.sort((a, b) => (down ? order(b[0], a[0]) : order(a[0], b[0])));
  for (const [, row] of found) {
    const next = row.nextElementSibling;
    const detail = row.dataset.detail ? document.getElementById(row.dataset.detail) : null;
    body.append(row);
    if (detail !== null && next !== null) body.append(detail);
  }
}

function zoom(button) {
  for (const other of button.parentNode.children) {
    const chosen = other === button;
    other.setAttribute("aria-pressed", String(chosen));
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button === null) return;
  if (button.matches(".more")) press(button);
  else if (button.matches("th button")) sort(button);
  else if (button.matches(".tabs button")) zoom(button);
});

addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    part.dataset.folded = "";
  }
});
addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-folded]")) {
    part.open = false;
    delete part.dataset.folded;
  }
});
