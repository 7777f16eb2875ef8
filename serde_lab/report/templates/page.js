"use strict";
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.firstChild?.textContent ?? "";
    const number = Number(text);
    return text.trim() !== "" && !Number.isNaN(number) ? number : text.trim();
  };
  const absent = (v) => v === "" || v === "–";
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b
    : typeof a === "number" ? -1
    : typeof b === "number" ? 1
    : a.localeCompare(b, undefined, { numeric: true });
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    if (body.rows.length < 2) continue;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [value(row, column), row]);
        rows.sort(([a], [b]) =>
          absent(a) || absent(b) ? absent(a) - absent(b) : up ? compare(a, b) : compare(b, a));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
  // paper cannot unfold anything; the raw values stay folded, since they would fill it
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((d) => !d.closest("#raw"));
    opened.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((d) => { d.open = false; }));
})();
