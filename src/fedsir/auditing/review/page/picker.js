// The dialog that finds one class among many by a part of its name.

import { findClasses, shown } from "./list.js";

const SHOWN = 100; // rows; more would not be read
const RECENT = 5;

export class Picker {
  constructor(classes, choose) {
    Object.assign(this, { classes, choose, recent: [], found: [], at: 0, tags: new Map() });
    this.dialog = document.getElementById("picker");
    this.input = document.getElementById("find");
    this.list = document.getElementById("found");
    this.count = document.getElementById("found-count");
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    document.getElementById("picker-close").addEventListener("click", () => this.dialog.close());
  }

  // tags: class → word that stands beside its name, such as "given".
  open(tags, text = "") {
    this.tags = tags;
    this.input.value = text;
    this.dialog.showModal();
    this.input.focus();
    this.search();
  }

  search() {
    this.found = findClasses(this.classes, this.input.value, this.recent);
    // Somebody who opens this wants neither the given nor the suggested label.
    this.at = Math.max(0, this.found.findIndex((name) => this.input.value.trim() !== "" || !this.tags.has(name)));
    this.list.replaceChildren(...this.found.slice(0, SHOWN).map((name, i) => this.row(name, i)));
    const hidden = this.found.length - SHOWN;
    this.count.textContent = this.found.length === 0 ? "No class has this in its name."
      : hidden > 0 ? `and ${hidden.toLocaleString("en")} more: type to find them`
        : `${this.found.length} ${this.found.length === 1 ? "class" : "classes"}`;
    this.mark();
  }

  row(name, i) {
    const row = document.createElement("li");
    row.id = `class-${i}`;
    row.setAttribute("role", "option");
    row.textContent = shown(name);
    if (this.tags.has(name)) {
      const tag = document.createElement("span");
      tag.className = "tag";
      tag.textContent = ` (${this.tags.get(name)})`;
      row.append(tag);
    }
    row.addEventListener("click", () => this.take(name));
    return row;
  }

  mark() {
    [...this.list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === this.at)));
    const row = this.list.children[this.at];
    if (row) {
      row.scrollIntoView({ block: "nearest" });
      this.input.setAttribute("aria-activedescendant", row.id);
    } else {
      this.input.removeAttribute("aria-activedescendant");
    }
  }

  onKey(event) {
    const last = Math.min(this.found.length, SHOWN) - 1;
    const moves = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + 8, PageUp: this.at - 8 };
    if (event.key in moves) {
      this.at = Math.min(Math.max(moves[event.key], 0), Math.max(last, 0));
      this.mark();
    } else if (event.key === "Enter" && !event.isComposing && this.found[this.at] !== undefined) {
      this.take(this.found[this.at]);
    } else {
      return;
    }
    event.preventDefault();
  }

  take(name) {
    this.recent = [name, ...this.recent.filter((other) => other !== name)].slice(0, RECENT);
    this.dialog.close();
    this.choose(name);
  }
}
