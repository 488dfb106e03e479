// Sorts and filters the tables of a report; without it they are plain tables.
"use strict";
(() => {
  const LEAST_TO_SORT = 3;
  const LEAST_TO_FILTER = 9;
  const UNITS = { "µs": 1e-6, ms: 1e-3, s: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

  // The number that a cell begins with, in its unit; null where it begins with none.
  const numberOf = (text) => {
    const found = text.replaceAll(",", "").replace("−", "-").match(/^([+-]?[\d.]+(?:e[+-]?\d+)?)\s*(\S*)/i);
    if (!found || Number.isNaN(Number(found[1]))) return null;
    return Number(found[1]) * (UNITS[found[2]] ?? 1);
  };

  const textOf = (row, column) => row.cells[column]?.textContent.trim() ?? "";

  const sort = (table, head, column) => {
    const body = table.tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    const rows = [...body.rows].map((row) => ({ row, text: textOf(row, column) }));
    const filled = rows.filter((one) => one.text);
    const numeric = filled.every((one) => numberOf(one.text) !== null);
    const compare = numeric
      ? (a, b) => numberOf(a.text) - numberOf(b.text)
      : (a, b) => a.text.localeCompare(b.text, "en", { numeric: true });
    filled.sort((a, b) => (down ? -compare(a, b) : compare(a, b)));
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    // What has nothing there stands last, whichever way.
    body.append(...filled.map((one) => one.row), ...rows.filter((one) => !one.text).map((one) => one.row));
  };

  const addFilter = (table) => {
    const rows = [...table.tBodies[0].rows];
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("span");
    label.className = "filter";
    input.type = "search";
    count.setAttribute("aria-live", "polite");
    label.append("Filter", input, count);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
    table.parentElement.before(label);
  };

  for (const table of document.querySelectorAll("table.data")) {
    const rows = table.tBodies[0]?.rows.length ?? 0;
    if (!table.tHead || rows < LEAST_TO_SORT) continue;
    for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent || "name";
      button.addEventListener("click", () => sort(table, head, column));
      head.replaceChildren(button);
    }
    if (rows >= LEAST_TO_FILTER) addFilter(table);
  }
  // What is wider than the page scrolls by the keyboard too.
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
})();
