for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const cells = () => [...table.tBodies].flatMap(body => [...body.rows]).map(row => row.cells[column]);
    const isNumber = cells().every(cell => "value" in cell.dataset);
    if (isNumber) head.classList.add("number");
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort");
      const down = order ? order === "ascending" : isNumber;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => isNumber ? Number(row.cells[column].dataset.value) : row.cells[column].textContent;
      const byText = (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true });
      const compare = isNumber ? (a, b) => key(a) - key(b) || 0 : byText;
      const inOrder = (a, b) => down ? compare(b, a) : compare(a, b);
      for (const body of table.tBodies) body.append(...[...body.rows].sort(inOrder));
    });
  });
}
const folds = state => document.querySelectorAll(`details${state}`);
addEventListener("beforeprint", () => {
  for (const fold of folds(":not([open])")) { fold.open = true; fold.dataset.folded = ""; }
});
addEventListener("afterprint", () => {
  for (const fold of folds("[data-folded]")) { fold.open = false; delete fold.dataset.folded; }
});
