// What a page can do beyond being read: sort and filter tables and pictures, show values, hide lines, copy commands.
// Everything is in the page without it; nothing here makes markup from text.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const plural = (n) => n.toLocaleString("en");

  // ---- values under the pointer
  const tip = document.getElementById("tip");
  const place = (event) => {
    const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!mark) { tip.hidden = true; return; }
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8))}px`;
    const above = event.clientY - box.height - 12;
    tip.style.top = `${above > 4 ? above : event.clientY + 16}px`;
  };
  document.addEventListener("pointermove", place);
  document.addEventListener("pointerdown", place);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // ---- tables and lists: filter, then show the first few
  for (const box of all("[data-filterable]")) {
    const items = () => all("[data-item]", box);
    const limit = Number(box.dataset.limit || 0);
    const search = box.querySelector("[data-search]");
    const selects = all("select[data-key]", box);
    const count = box.querySelector("[data-count]");
    const more = box.querySelector("[data-more]");
    let isWhole = false;
    const update = () => {
      const words = search ? search.value.trim().toLowerCase() : "";
      let matching = 0, shown = 0;
      for (const item of items()) {
        const fits = (!words || item.dataset.name.toLowerCase().includes(words))
          && selects.every((select) => !select.value || item.dataset[select.dataset.key] === select.value);
        matching += fits;
        const isShown = fits && (isWhole || !limit || shown < limit);
        shown += isShown;
        item.hidden = !isShown;
      }
      if (count) count.textContent = `${plural(shown)} of ${plural(items().length)} shown`
        + (shown < matching ? `, ${plural(matching)} match` : "");
      if (more) {
        more.hidden = !isWhole && shown === matching;
        more.textContent = isWhole ? `Show the first ${plural(limit)}` : `Show all ${plural(matching)}`;
      }
    };
    if (search) search.addEventListener("input", update);
    for (const select of selects) select.addEventListener("change", update);
    if (more) more.addEventListener("click", () => { isWhole = !isWhole; update(); });
    box.addEventListener("sorted", update);
    box.addEventListener("reveal", () => {
      isWhole = true;
      if (search) search.value = "";
      for (const select of selects) select.value = "";
      update();
    });
    for (const tools of all(".tools", box)) tools.hidden = false;
    update();
  }
  const reveal = () => {  // a link to a row that is not shown shows it
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.hidden) {
      target.closest("[data-filterable]").dispatchEvent(new Event("reveal"));
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // ---- tables: sort by a column
  const value = (row, i) => {
    const cell = row.cells[i], own = cell.dataset.value;
    return own === undefined ? cell.textContent.trim() : own === "" ? null : Number(own);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number"
    ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  for (const table of all("table[data-sortable]")) {
    const heads = all("thead th", table);
    heads.forEach((head, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const isNumber = head.classList.contains("number");
        const goesDown = before ? before === "ascending" : isNumber;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", goesDown ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = Array.from(body.rows).map((row) => [value(row, i), row]);
        rows.sort(([a], [b]) => a === null || b === null
          ? (a === null) - (b === null)  // what is not known comes last, whichever way
          : (goesDown ? -1 : 1) * compare(a, b));
        body.append(...rows.map(([, row]) => row));
        table.dispatchEvent(new Event("sorted", { bubbles: true }));
      });
    });
  }

  // ---- lines of a chart, one by one
  for (const button of all("button[data-series]")) {
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isShown));
      const figure = button.closest("figure");
      for (const line of all(`[data-of="${Number(button.dataset.series)}"]`, figure)) {
        if (isShown) line.removeAttribute("visibility"); else line.setAttribute("visibility", "hidden");
      }
    });
  }

  // ---- commands
  for (const box of all(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(box.querySelector("pre"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);  // what stays marked where nothing may be copied
      if (!navigator.clipboard) return;
      navigator.clipboard.writeText(box.querySelector("pre").textContent.trim()).then(
        () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); },
        () => { button.textContent = "Marked"; });
    });
    box.append(button);
  }

  // ---- paper has no buttons: what is folded is printed open
  const folded = () => all("details[data-print]:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => { opened = folded(); for (const box of opened) box.open = true; });
  addEventListener("afterprint", () => { for (const box of opened) box.open = false; });
})();
