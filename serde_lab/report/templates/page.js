"use strict";
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    // a second, smaller line is no part of the value
    const shown = [...cell.childNodes].filter((node) => node.nodeName !== "SMALL");
    const text = cell.dataset.v ?? shown.map((node) => node.textContent).join("");
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
  // a table that does not fit says so; folded ones are measured once they are opened
  const fits = new ResizeObserver((seen) => seen.forEach(({ target }) =>
    target.classList.toggle("wider", target.scrollWidth > target.clientWidth + 1)));
  document.querySelectorAll(".scroll").forEach((box) => fits.observe(box));
  // paper cannot unfold anything; what would fill page after page stays folded
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((d) => !d.closest("#raw, #checks, #environment"));
    opened.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((d) => { d.open = false; }));
})();
