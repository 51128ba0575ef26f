// Rows of a list that are selected for an action. Without it, the buttons apply to all checked rows.
"use strict";

function selecting(form) {
  const region = document.querySelector("[data-by-row]"), said = form.querySelector("[data-selected]");
  const boxes = () => [...region.querySelectorAll("tbody input[name=ids]")];
  const count = () => {
    const all = boxes(), number = all.filter((box) => box.checked).length;
    const text = number ? `${number} selected:` : "None selected";
    if (said.textContent !== text) said.textContent = text;
    for (const button of form.querySelectorAll("button")) button.disabled = !number;
    form.hidden = !all.length;
    const every = region.querySelector("[data-select-all]");
    if (!every) return;
    every.hidden = false;
    every.checked = number > 0 && number === all.length;
    every.indeterminate = number > 0 && number < all.length;
  };
  region.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) for (const box of boxes()) box.checked = event.target.checked;
    count();
  });
  region.addEventListener("swapped", count);
  addEventListener("pageshow", count); // going back restores the checked boxes
  count();
}

for (const form of document.querySelectorAll("#selection")) selecting(form);
