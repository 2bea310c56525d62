// The review page: one sample at a time, a key for each decision.

import { MARKS, digitKeys, filtered, keyOf, nextUndecided, percent, samplesOf, shown } from "./list.js";
import { Picker } from "./picker.js";
import { Pictures, Stage } from "./picture.js";

const $ = (id) => document.getElementById(id);
const AROUND = 6; // thumbnails on each side
const AHEAD = 3; // pictures fetched before they are wanted
const WORDS = { accept: "Accepted: the label becomes", reject: "Rejected: the label stays", correct: "Corrected: the label becomes" };

const pictures = new Pictures();
const stage = new Stage($("viewport"), $("zoom-level"), $("pixels"));
let answer; // of the server: what does not change
let samples = [];
let list = []; // those that fit the filters
let place = 0; // in the list
let decided = new Map();
let digits = new Map();
let picker;
let isSaving = false;
let keysDecide = remembered("single-keys") !== "off";

// ---------------------------------------------------------------- talking to the server

async function ask(route, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let reply;
  try {
    reply = await fetch(route, options);
  } catch {
    throw new Error(`${body ? "Not saved: the" : "The"} review does not answer; it was ended. What you decided before is saved. To go on, run fedsir audit review again and open the new address.`);
  }
  const content = await reply.json();
  if (!reply.ok) throw new Error(content.problem);
  return content;
}

function fail(error) {
  $("problem").textContent = error.message;
  $("problem").hidden = false;
}

async function readDecisions() {
  const now = await ask("decisions");
  decided = new Map(now.decided.map(([index, action, label]) => [index, { action, label }]));
  return now.last;
}

async function decide(action, label) {
  const sample = list[place];
  if (isSaving || !sample) return; // a second key before the first is saved would be about a sample not yet seen
  isSaving = true;
  try {
    const saved = await ask("decide", { sample: sample.index, action, label });
    decided.set(sample.index, saved);
    $("problem").hidden = true;
    const next = nextUndecided(list, decided, place);
    if (next >= 0) place = next;
    show(`${WORDS[saved.action]} ${shown(saved.label)}. `);
    $("saved").textContent = `Saved: ${MARKS[saved.action]} ${shown(saved.label)}`;
  } catch (error) {
    fail(error);
  } finally {
    isSaving = false;
  }
}

async function undo() {
  if (isSaving) return;
  isSaving = true;
  try {
    const undone = await ask("undo", {});
    await readDecisions();
    $("problem").hidden = true;
    if (undone.sample === null) {
      say("There is nothing to undo.");
      $("saved").textContent = "There is nothing to undo.";
    } else {
      goTo(undone.sample, `Undone: ${shown(undone.label)}. `);
      $("saved").textContent = `Undone: ${MARKS[undone.action]} ${shown(undone.label)}`;
    }
  } catch (error) {
    fail(error);
  } finally {
    isSaving = false;
  }
}

// ---------------------------------------------------------------- what is shown

function say(words) {
  $("said").textContent = words;
}

function setText(parent, selector, words) {
  parent.querySelector(selector).textContent = words;
}

// Show the sample at `place`; `news` is read out before it.
function show(news = "") {
  const sample = list[place];
  const isEmpty = sample === undefined;
  $("stage").hidden = isEmpty || !answer.has_images;
  $("panel").hidden = isEmpty;
  $("empty").hidden = !isEmpty;
  showProgress();
  if (isEmpty) {
    $("strip").hidden = true;
    setText($("empty"), "h2", samples.length ? "No sample fits the filters" : "Nothing is suspicious");
    setText($("empty"), "p", samples.length ? "" : "The audit found no label that looks wrong. There is nothing to decide.");
    $("show-all").hidden = samples.length === 0;
    return;
  }
  $("place").textContent = `Sample ${(place + 1).toLocaleString("en")} of ${list.length.toLocaleString("en")}`;
  showAbout(sample);
  $("given").textContent = shown(sample.given);
  $("suggested").textContent = shown(sample.suggested);
  $("score").textContent = `${percent(sample.score)} likely right`;
  $("probability").textContent = `${percent(sample.probability)} likely`;
  setText($("accept"), "b", shown(sample.suggested));
  setText($("reject"), "b", shown(sample.given));
  const state = decided.get(sample.index);
  showDecision(state);
  showClasses(sample);
  const now = state ? `${WORDS[state.action]} ${shown(state.label)}` : "Not decided";
  say(`${news}${$("place").textContent}. Client ${shown(sample.client)}. Given ${shown(sample.given)}, suggested ${shown(sample.suggested)}. ${now}.`);
  if (answer.has_images) {
    stage.show(sample.index, pictures, `Sample ${shown(sample.path || sample.id)}, given label ${shown(sample.given)}`);
    showStrip();
    ahead().forEach((index) => pictures.get("image", index));
  }
}

// The samples that are likely to be looked at next.
function ahead() {
  const wanted = [];
  let at = place;
  while (wanted.length < AHEAD) {
    at = nextUndecided(list, decided, at);
    if (at < 0 || list[at].index === list[place].index || wanted.includes(list[at].index)) break;
    wanted.push(list[at].index);
  }
  if (place + 1 < list.length && !wanted.includes(list[place + 1].index)) wanted.push(list[place + 1].index);
  return wanted;
}

function showAbout(sample) {
  const rows = [["Client", sample.client], ...(sample.path ? [["File", sample.path]] : []), ["Id", sample.id]];
  $("about").replaceChildren(...rows.filter(([name, value]) => name !== "Id" || value !== sample.path).map(([name, value]) => {
    const row = document.createElement("div");
    const term = document.createElement("dt");
    const words = document.createElement("dd");
    term.textContent = name;
    words.textContent = shown(value);
    row.append(term, words);
    return row;
  }));
}

function showDecision(decision) {
  const box = $("decision");
  box.className = decision ? decision.action : "";
  setText(box, ".mark", decision ? MARKS[decision.action] : "○");
  setText(box, ".words", decision ? `${WORDS[decision.action]} ${shown(decision.label)}` : "Not decided yet");
  for (const action of ["accept", "reject", "correct"]) {
    $(action).setAttribute("aria-pressed", String(decision?.action === action));
  }
}

function showClasses(sample) {
  $("classes").hidden = digits.size < 3;
  if (digits.size < 3) return;
  const buttons = [...digits].map(([digit, name]) => {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    button.type = "button";
    button.className = name === sample.given ? "given" : name === sample.suggested ? "suggested" : "";
    if (button.className) button.title = `the ${button.className} label`;
    button.setAttribute("aria-keyshortcuts", digit);
    key.textContent = digit;
    button.append(key, ` ${shown(name)}`);
    button.addEventListener("click", () => decide("correct", name));
    return button;
  });
  replaceButtons($("classes"), buttons, [...$("classes").children].indexOf(document.activeElement));
}

function showProgress() {
  const n = samples.length;
  const done = decided.size;
  $("bar").max = Math.max(n, 1);
  $("bar").value = done;
  const some = list.length < n ? `; ${list.filter((sample) => decided.has(sample.index)).length.toLocaleString("en")} of these ${list.length.toLocaleString("en")}` : "";
  $("counted").textContent = `${done.toLocaleString("en")} of ${n.toLocaleString("en")} decided${some}`;
  document.title = `${done}/${n} · Label review`;
  $("done").hidden = n === 0 || done < n;
}

function showStrip() {
  $("strip").hidden = false;
  const first = Math.max(0, Math.min(place - AROUND, list.length - 2 * AROUND - 1));
  const thumbnails = list.slice(first, first + 2 * AROUND + 1).map((sample, i) => thumbnail(sample, first + i));
  replaceButtons($("strip"), thumbnails, place - first);
}

// Put new buttons into a box. If one of the old ones had the focus, the new one at that place has it then.
function replaceButtons(box, buttons, at) {
  const hadFocus = box.contains(document.activeElement);
  box.replaceChildren(...buttons);
  if (hadFocus) buttons[at]?.focus();
}

function thumbnail(sample, at) {
  const decision = decided.get(sample.index);
  const button = document.createElement("button");
  const image = document.createElement("img");
  const mark = document.createElement("span");
  button.type = "button";
  button.className = decision ? decision.action : "";
  button.setAttribute("aria-label", `Sample ${at + 1}: ${shown(sample.given)}, suggested ${shown(sample.suggested)}, ${decision ? `${WORDS[decision.action]} ${shown(decision.label)}` : "not decided"}`);
  if (at === place) button.setAttribute("aria-current", "true");
  image.alt = "";
  mark.className = "mark";
  mark.textContent = decision ? MARKS[decision.action] : "";
  button.append(image, mark);
  button.addEventListener("click", () => move(at));
  pictures.get("thumbnail", sample.index).then(({ url }) => {
    if (url) image.src = url;
    else image.replaceWith(Object.assign(document.createElement("span"), { className: "gone", textContent: "?" }));
  });
  return button;
}

// ---------------------------------------------------------------- moving

function move(to, news) {
  place = Math.min(Math.max(to, 0), Math.max(list.length - 1, 0));
  show(news);
}

function goTo(index, news) {
  let at = list.findIndex((sample) => sample.index === index);
  if (at < 0) { // outside the filters
    resetFilters();
    at = list.findIndex((sample) => sample.index === index);
  }
  move(at, news);
}

function filters() {
  return { client: $("by-client").value, given: $("by-given").value, suggested: $("by-suggested").value, state: $("by-state").value };
}

// A sample stays in the list when it is decided: one can go back to it. The list is made anew when a filter changes.
function applyFilters() {
  const now = list[place]?.index;
  list = filtered(samples, decided, filters());
  const same = list.findIndex((sample) => sample.index === now);
  place = same >= 0 ? same : Math.max(0, nextUndecided(list, decided, -1));
  show();
}

function resetFilters() {
  $("filters").reset();
  list = filtered(samples, decided, filters());
}

// Choices with how many samples each has; names in natural order unless their own order means something.
function fillSelect(select, any, values, isSorted) {
  const counts = new Map();
  values.forEach((value) => counts.set(value, (counts.get(value) ?? 0) + 1));
  const names = [...counts.keys()];
  if (isSorted) names.sort(new Intl.Collator("en", { numeric: true }).compare);
  select.replaceChildren(new Option(any, ""), ...names.map((name) => new Option(`${shown(name)} (${counts.get(name).toLocaleString("en")})`, name)));
}

// ---------------------------------------------------------------- keys

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") $("sample").focus(); // from the filters back to the keys
    return;
  }
  const key = keyOf(event);
  const pans = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const moves = {
    ArrowLeft: () => move(place - 1), ArrowRight: () => move(place + 1), Home: () => move(0), End: () => move(list.length - 1),
  };
  const letters = {
    a: () => decide("accept"), r: () => decide("reject"), c: openPicker, u: undo, z: () => stage.cycle(),
    n: () => move(Math.max(0, nextUndecided(list, decided, place))), f: () => $("by-client").focus(),
    "+": () => stage.step(1), "-": () => stage.step(-1), "?": () => $("keys").showModal(),
  };
  if (event.shiftKey && key in pans) stage.pan(...pans[key]);
  else if (key in moves) moves[key]();
  else if (keysDecide && !event.repeat && key in letters) letters[key]();
  else if (keysDecide && !event.repeat && digits.has(key)) decide("correct", digits.get(key));
  else return;
  event.preventDefault();
}

function openPicker() {
  const sample = list[place];
  if (sample && !$("correct").hidden) picker.open(new Map([[sample.given, "given"], [sample.suggested, "suggested"]]));
}

function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch { // a browser that keeps nothing
    return null;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it holds until the page is closed
  }
}

// ---------------------------------------------------------------- start

function connect() {
  document.addEventListener("keydown", onKey);
  $("accept").addEventListener("click", () => decide("accept"));
  $("reject").addEventListener("click", () => decide("reject"));
  $("correct").addEventListener("click", openPicker);
  $("undo").addEventListener("click", undo);
  $("previous").addEventListener("click", () => move(place - 1));
  $("next").addEventListener("click", () => move(place + 1));
  $("zoom-in").addEventListener("click", () => stage.step(1));
  $("zoom-out").addEventListener("click", () => stage.step(-1));
  $("help").addEventListener("click", () => $("keys").showModal());
  $("keys-close").addEventListener("click", () => $("keys").close());
  $("show-all").addEventListener("click", () => { resetFilters(); move(Math.max(0, nextUndecided(list, decided, -1))); });
  $("filters").addEventListener("change", () => { applyFilters(); $("sample").focus(); });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("single-keys").checked = keysDecide;
  $("single-keys").addEventListener("change", (event) => {
    keysDecide = event.target.checked;
    remember("single-keys", keysDecide ? "on" : "off");
  });
  window.addEventListener("focus", async () => { // another tab may have decided
    if (isSaving) return;
    const before = JSON.stringify([...decided]);
    try {
      await readDecisions();
      if (JSON.stringify([...decided]) !== before) show();
    } catch (error) {
      fail(error);
    }
  });
}

async function start() {
  answer = await ask("samples");
  samples = samplesOf(answer);
  digits = digitKeys(answer.classes);
  picker = new Picker(answer.classes, (name) => decide("correct", name));
  const whole = answer.data || answer.folder;
  $("data").textContent = whole.split(/[\\/]/).filter(Boolean).at(-1) ?? "";
  $("data").title = whole;
  setText($("done"), "code", answer.next);
  $("correct").hidden = answer.classes.length < 3;
  $("digit-row").hidden = digits.size < 2;
  $("notes").hidden = answer.notes.length === 0;
  $("notes").replaceChildren(...answer.notes.map((note) => Object.assign(document.createElement("p"), { textContent: note })));
  document.body.classList.toggle("without-images", !answer.has_images);
  fillSelect($("by-client"), "all", samples.map((sample) => sample.client), false);
  fillSelect($("by-given"), "any", samples.map((sample) => sample.given), true);
  fillSelect($("by-suggested"), "any", samples.map((sample) => sample.suggested), true);
  const last = await readDecisions();
  list = filtered(samples, decided, filters());
  connect();
  move(Math.max(0, nextUndecided(list, decided, last ?? -1)));
}

start().catch(fail);
